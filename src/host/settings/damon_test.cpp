// SPDX-License-Identifier: Apache-2.0
#include "host/settings/damon.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/child.h"
#include "tests/support/expect.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using std::filesystem::path;
using test::expect_refused;

// DAMON's files as of a kernel with one idle kdamond.
class DamonFiles : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const file :
         {"0/contexts/nr_contexts", "0/contexts/0/targets/nr_targets",
          "0/contexts/0/schemes/nr_schemes", "0/contexts/0/targets/0/pid_target",
          "0/contexts/0/monitoring_attrs/intervals/sample_us",
          "0/contexts/0/monitoring_attrs/intervals/aggr_us",
          "0/contexts/0/monitoring_attrs/intervals/update_us",
          "0/contexts/0/monitoring_attrs/nr_regions/min",
          "0/contexts/0/monitoring_attrs/nr_regions/max", "nr_kdamonds"}) {
      set(file, "0");
    }
    for (const char* const file : {"sz/max", "nr_accesses/min", "nr_accesses/max", "age/max"}) {
      set(path("0/contexts/0/schemes/0/access_pattern") / file, "0");
    }
    set("0/contexts/0/operations", "vaddr");
    set("0/contexts/0/avail_operations", "vaddr\nfvaddr\npaddr");
    set("0/contexts/0/schemes/0/action", "stat");
    set("0/state", "off");
    set("0/pid", "7");
    folder_.write("proc/7/schedstat", "2500000 17 3");
  }
  path kdamonds() const { return root_ / "sys/kernel/mm/damon/admin/kdamonds"; }
  void set(const path& file, const std::string& value) const {
    folder_.write(kKdamonds / file, value);
  }
  std::string value(const path& file) const {
    return HostFiles(root_).read(path(kKdamonds) / file).value();
  }
  void tried(int number, std::uintptr_t begin, std::uintptr_t end, int accesses) const {
    const path region = path("0/contexts/0/schemes/0/tried_regions") / std::to_string(number);
    set(region / "start", std::to_string(begin));
    set(region / "end", std::to_string(end));
    set(region / "nr_accesses", std::to_string(accesses));
  }
  auto watch(int pid = 4711) const { return watch_by_damon(pid, root_, HostFiles(root_)); }
  // A child sets up DAMON and is killed.
  void watch_and_be_killed() const {
    ASSERT_TRUE(test::is_killed_with([&] { return watch(); }));
    ASSERT_EQ(value("nr_kdamonds"), "1");
  }
  const test::TestFolder folder_;
  const path root_ = folder_.root();
};

TEST_F(DamonFiles, AProcessIsWatchedAndWhatWasAccessedIsTold) {
  tried(0, 0x5000, 0x7000, 20);
  tried(1, 0x1000, 0x2000, 5);
  tried(2, 0x2000, 0x5000, 0);
  {
    const auto watched = watch();
    ASSERT_TRUE(watched) << watched.error().message;
    EXPECT_EQ(value("nr_kdamonds"), "1");
    EXPECT_EQ(value("0/contexts/0/targets/0/pid_target"), "4711");
    EXPECT_EQ(value("0/contexts/0/schemes/0/access_pattern/nr_accesses/min"), "1");
    EXPECT_EQ(value("0/state"), "on");
    const auto regions = (*watched)->look();
    ASSERT_TRUE(regions) << regions.error().message;
    EXPECT_EQ(value("0/state"), "update_schemes_tried_regions");
    ASSERT_EQ(regions->size(), 2u);
    EXPECT_EQ((*regions)[0].begin, 0x1000u);
    EXPECT_EQ((*regions)[0].share, 0.25);
    EXPECT_EQ((*regions)[1].end, 0x7000u);
    EXPECT_EQ((*regions)[1].share, 1);
    EXPECT_EQ((*watched)->cpu(), Nanoseconds{2'500'000});
    expect_refused(watch(), ErrorCode::exhausted, "one for the host");
    EXPECT_FALSE(restore_damon(root_, HostFiles(root_))) << "held";
  }
  EXPECT_EQ(value("nr_kdamonds"), "0");
  EXPECT_EQ(value("0/state"), "off");
  EXPECT_FALSE(restore_damon(root_, HostFiles(root_)));
}

// No regions would mean that all memory is cold.
TEST_F(DamonFiles, RegionsThatCannotBeRead_AreNoAnswer) {
  const auto watched = watch();
  ASSERT_TRUE(watched) << watched.error().message;
  const path tried = kdamonds() / "0/contexts/0/schemes/0/tried_regions";
  std::filesystem::create_symlink("tried_regions", tried);
  EXPECT_FALSE((*watched)->look());
  std::filesystem::remove(tried);
  std::filesystem::create_directories(tried / "0");
  EXPECT_FALSE((*watched)->look());
}

TEST_F(DamonFiles, ForeignKdamond_IsLeftAloneAndNamed) {
  set("nr_kdamonds", "1");
  set("0/state", "on");
  set("0/contexts/0/operations", "paddr");
  expect_refused(watch(), ErrorCode::denied, "kdamond 0 is on (PID 7), paddr, action stat");
  EXPECT_EQ(value("nr_kdamonds"), "1");
  EXPECT_EQ(value("0/state"), "on");
  EXPECT_EQ(value("0/contexts/0/targets/0/pid_target"), "0");
}

TEST_F(DamonFiles, SetupOfAKilledUser_IsRemovedByTheNext) {
  watch_and_be_killed();
  EXPECT_TRUE(restore_damon(root_, HostFiles(root_)));
  EXPECT_EQ(value("nr_kdamonds"), "0");
  EXPECT_FALSE(restore_damon(root_, HostFiles(root_))) << "once";
  watch_and_be_killed();
  const auto watched = watch(4712);
  ASSERT_TRUE(watched) << watched.error().message;
  EXPECT_EQ(value("0/contexts/0/targets/0/pid_target"), "4712");
}

TEST_F(DamonFiles, ForeignSetupAfterAKill_Stays) {
  watch_and_be_killed();
  set("0/contexts/0/targets/0/pid_target", "4713");
  restore_damon(root_, HostFiles(root_));
  EXPECT_EQ(value("nr_kdamonds"), "1");
  EXPECT_EQ(value("0/state"), "on");
  expect_refused(watch(), ErrorCode::denied, "somebody else");
}

TEST_F(DamonFiles, UnreadableSetup_StaysRecorded) {
  watch_and_be_killed();
  const path action = kdamonds() / "0/contexts/0/schemes/0/action";
  std::filesystem::remove(action);
  std::filesystem::create_directory(action);
  EXPECT_FALSE(restore_damon(root_, HostFiles(root_)));
  EXPECT_EQ(value("nr_kdamonds"), "1");
  std::filesystem::remove(action);
  set("0/contexts/0/schemes/0/action", "stat");
  EXPECT_TRUE(restore_damon(root_, HostFiles(root_)));
  EXPECT_EQ(value("nr_kdamonds"), "0");
}

TEST_F(DamonFiles, UnavailableDamon_IsExplainedAndNothingChanges) {
  set("0/contexts/0/avail_operations", "paddr");
  expect_refused(watch(), ErrorCode::unsupported, "CONFIG_DAMON_VADDR");
  EXPECT_EQ(value("nr_kdamonds"), "0");
  folder_.write("sys/module/damon_reclaim/parameters/enabled", "Y");
  expect_refused(watch(), ErrorCode::denied, "damon_reclaim");
  std::filesystem::remove_all(root_ / "sys");
  expect_refused(watch(), ErrorCode::unsupported, "no DAMON");
}

}  // namespace
}  // namespace headrace
