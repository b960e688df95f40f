#include "measure/instruments/counters/resctrl.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/fake_host.h"

namespace headrace::instruments {
namespace {

const std::string kMounted = "sys/fs/resctrl/";

// A directory that anybody may write to stands for the file system. What mkdir makes in a group by
// itself is there before.
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
  auto open() { return open_resctrl(host_.at("sys/fs/resctrl"), host_.at("proc")); }
  static std::string own() {
    return kMounted + "mon_groups/headrace-" + std::to_string(syscall(SYS_gettid)) + "/";
  }

  test::FakeHost host_;
};

TEST_F(ResctrlTest, WithoutAGroupOfItsOwnItCountsAllPrograms) {
  // As where the hardware has no number left: the group cannot be made.
  std::filesystem::remove(host_.at(kMounted + "mon_groups"));
  const auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 1500);
  EXPECT_EQ((*counter)->words(), "resctrl mbm_total_bytes of 2 caches, of all programs");
}

TEST_F(ResctrlTest, AGroupOfItsOwnHasThisThreadAndGoesWithTheCounter) {
  set(own(), "mon_L3_00", "42");
  set(own(), "mon_L3_01", "1");
  host_.write(own() + "tasks", "");
  auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 43);
  EXPECT_EQ((*counter)->words(), "resctrl mbm_total_bytes of 2 caches, of this session");
  for (const NodeKind kind : {NodeKind::dram, NodeKind::hbm, NodeKind::cxl}) {
    EXPECT_TRUE((*counter)->counts({.kind = kind})) << to_string(kind);
  }
  std::ifstream tasks(host_.at(own() + "tasks"));
  long thread = 0;
  tasks >> thread;
  EXPECT_EQ(thread, syscall(SYS_gettid));
  // The kernel's files go with their directory.
  std::filesystem::remove(host_.at(own() + "tasks"));
  std::filesystem::remove_all(host_.at(own() + "mon_data"));
  counter->reset();
  EXPECT_FALSE(std::filesystem::exists(host_.at(own())));
}

TEST_F(ResctrlTest, AGroupThatTakesNoThreadIsNotLeftBehind) {
  const auto counter = open();  // there is no file for threads in it
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_FALSE(std::filesystem::exists(host_.at(own())));
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 1500);
}

TEST_F(ResctrlTest, WhatKilledSessionsLeftIsRemoved) {
  const auto stale = host_.at(kMounted + "mon_groups/headrace-999999");
  const auto alive = host_.at(kMounted + "mon_groups/headrace-1");
  const auto other = host_.at(kMounted + "mon_groups/somebody");
  for (const auto& path : {stale, alive, other}) std::filesystem::create_directories(path);
  host_.write("proc/1/stat", "");
  (void)open();
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(alive));
  EXPECT_TRUE(std::filesystem::exists(other));
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
