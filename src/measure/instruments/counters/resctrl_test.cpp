// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/resctrl.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/fake_host.h"

namespace headrace::instruments {
namespace {

const std::string kMounted = "sys/fs/resctrl/";

// A plain directory stands for the file system.
class ResctrlTest : public testing::Test {
 protected:
  ResctrlTest() {
    host_.write(kMounted + "info/L3_MON/mon_features",
                "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes");
    std::filesystem::create_directories(host_.at(kMounted + "mon_groups"));
    set(kMounted, "mon_L3_00", "1000");
    set(kMounted, "mon_L3_01", "500");
  }
  void set(const std::string& group, const char* cache, const std::string& text) {
    host_.write(group + "mon_data/" + cache + "/mbm_total_bytes", text);
    host_.write(group + "mon_data/" + cache + "/mbm_local_bytes", "7");
  }
  auto open() {
    return open_resctrl(host_.at("sys/fs/resctrl"), host_.at("proc"),
                        [this](const std::filesystem::path& path) { return make(path); });
  }
  // Makes a group with the kernel's files.
  bool make(const std::filesystem::path& path) {
    if (!make_directory(path)) return false;
    made_.push_back(path);
    if (!takes_threads_) return true;
    const std::string group = kMounted + "mon_groups/" + path.filename().string() + "/";
    set(group, "mon_L3_00", "42");
    set(group, "mon_L3_01", "1");
    host_.write(group + "tasks", "");
    return true;
  }
  // The kernel's files disappear with their directory.
  static void empty(const std::filesystem::path& group) {
    std::filesystem::remove(group / "tasks");
    std::filesystem::remove_all(group / "mon_data");
  }

  test::FakeHost host_;
  bool takes_threads_ = true;
  std::vector<std::filesystem::path> made_;
};

TEST_F(ResctrlTest, WithoutAGroupOfItsOwnItCountsAllPrograms) {
  // As when the hardware has no number left: the group cannot be made.
  std::filesystem::remove(host_.at(kMounted + "mon_groups"));
  const auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 1500);
  EXPECT_EQ((*counter)->words(), "resctrl mbm_total_bytes of 2 caches, of all programs");
}

TEST_F(ResctrlTest, AGroupOfItsOwnHasThisThreadAndGoesWithTheCounter) {
  auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 43);
  EXPECT_EQ((*counter)->words(), "resctrl mbm_total_bytes of 2 caches, of this session");
  for (const NodeKind kind : {NodeKind::dram, NodeKind::hbm, NodeKind::cxl}) {
    EXPECT_TRUE((*counter)->counts({.kind = kind})) << to_string(kind);
  }
  ASSERT_EQ(made_.size(), 1U);
  std::ifstream tasks(made_.front() / "tasks");
  long thread = 0;
  tasks >> thread;
  EXPECT_EQ(thread, syscall(SYS_gettid));
  empty(made_.front());
  counter->reset();
  EXPECT_FALSE(std::filesystem::exists(made_.front()));
}

// As a killed process of our number left it, or a process of another namespace has it.
TEST_F(ResctrlTest, AGroupThatIsThereIsNeitherUsedNorRemoved) {
  auto first = open();
  ASSERT_TRUE(first && made_.size() == 1);
  const std::string name = made_.front().filename();
  const std::size_t number = name.rfind('-') + 1;
  const auto next = made_.front().parent_path() /
                    (name.substr(0, number) + std::to_string(std::stoul(name.substr(number)) + 1));
  std::filesystem::create_directories(next);
  auto second = open();
  ASSERT_TRUE(second);
  ASSERT_EQ(made_.size(), 2U);
  EXPECT_NE(made_[0], made_[1]) << "two counters of one thread";
  EXPECT_NE(made_[1], next);
  EXPECT_EQ((*second)->words(), "resctrl mbm_total_bytes of 2 caches, of this session");
  for (const auto& group : made_) empty(group);
  second->reset();
  EXPECT_TRUE(std::filesystem::exists(next));
  EXPECT_TRUE(std::filesystem::exists(made_[0]));
}

TEST_F(ResctrlTest, AGroupThatTakesNoThreadIsNotLeftBehind) {
  takes_threads_ = false;  // the file for them is missing
  const auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  ASSERT_EQ(made_.size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(made_.front()));
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 1500);
}

TEST_F(ResctrlTest, WhatKilledSessionsLeftIsRemoved) {
  const auto group = [&](const std::string& name) {
    const auto path = host_.at(kMounted + "mon_groups/" + name);
    std::filesystem::create_directories(path);
    return path;
  };
  std::filesystem::create_directories(host_.at("proc/self/ns"));
  std::filesystem::create_symlink("pid:[77]", host_.at("proc/self/ns/pid"));
  const auto stale = group("headrace-77-999999-0");
  host_.write("proc/1/stat", "");
  const auto kept = {group("headrace-77-1-0"), group("headrace-78-999999-0"),
                     group("headrace-77-x-0"), group("headrace-999999"), group("somebody")};
  (void)open();
  EXPECT_TRUE(std::filesystem::exists(stale)) << "this /proc shows no process";
  host_.write("proc/" + std::to_string(getpid()) + "/stat", "");
  (void)open();
  EXPECT_FALSE(std::filesystem::exists(stale));
  for (const auto& path : kept) EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

TEST_F(ResctrlTest, NoNumberNowIsAnErrorAndNotZero) {
  std::filesystem::remove(host_.at(kMounted + "mon_groups"));
  const auto counter = open();
  ASSERT_TRUE(counter);
  for (const char* word : {"Unavailable", "Error", "Unassigned", ""}) {
    set(kMounted, "mon_L3_01", word);
    EXPECT_FALSE((*counter)->bytes()) << word;
  }
}

TEST_F(ResctrlTest, LocalBytesWhereThatIsAllThereIs) {
  std::filesystem::remove(host_.at(kMounted + "mon_groups"));
  host_.write(kMounted + "info/L3_MON/mon_features", "llc_occupancy\nmbm_local_bytes");
  const auto counter = open();
  ASSERT_TRUE(counter);
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 14);
}

TEST_F(ResctrlTest, SaysWhyThereIsNothingAndWhatToDo) {
  host_.write(kMounted + "info/L3_MON/mon_features", "llc_occupancy");
  EXPECT_EQ(open().error().code, ErrorCode::unsupported);
  std::filesystem::remove_all(host_.at(kMounted + "info"));
  EXPECT_NE(open().error().message.find("sudo mount -t resctrl"), std::string::npos);
  std::filesystem::remove_all(host_.at("sys/fs/resctrl"));
  EXPECT_EQ(open().error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::instruments
