// SPDX-License-Identifier: Apache-2.0
#include "host/cgroups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/cpu_group.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

class CpuTimeTest : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const { root_.write(file, text); }
  std::optional<CpuTimeLimit> read() const { return cpu_time_limit(HostFiles(root_.root())); }

  test::TestFolder root_;
};

TEST_F(CpuTimeTest, TheTightestGroupOnTheWayUpCounts) {
  write("proc/self/cgroup", "0::/a/b");
  EXPECT_FALSE(read());
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_FALSE(read());
  write("sys/fs/cgroup/a/cpu.max", "250000 100000");
  write("sys/fs/cgroup/cpu.max", "900000 100000");
  const auto limit = read();
  ASSERT_TRUE(limit);
  EXPECT_DOUBLE_EQ(limit->cpus, 2.5);
  EXPECT_EQ(limit->threads(), 2U);
  EXPECT_EQ(limit->words(), "2.5 CPUs' time");
  EXPECT_EQ(limit->text(), "/sys/fs/cgroup/a/cpu.max: 250000 100000");
}

TEST_F(CpuTimeTest, VersionOneIsReadToo) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/x\n3:cpuset:/x\n0::/");
  write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(read());
  write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "50000");
  const auto limit = read();
  ASSERT_TRUE(limit);
  EXPECT_DOUBLE_EQ(limit->cpus, 0.5);
  EXPECT_EQ(limit->threads(), 1U) << "one must run";
}

TEST_F(CpuTimeTest, ThrottlingOfAllGroups_IsAddedUp) {
  const auto times = [&] { return times_throttled(HostFiles(root_.root())); };
  write("proc/self/cgroup", "0::/a/b");
  EXPECT_FALSE(times());
  write("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nuser_usec 3");  // without the controller
  EXPECT_FALSE(times());
  write("sys/fs/cgroup/a/b/cpu.stat",
        "usage_usec 5\nnr_periods 40\nnr_throttled 3\nthrottled_usec 900");
  write("sys/fs/cgroup/a/cpu.stat", "nr_periods 40\nnr_throttled 4");
  EXPECT_EQ(times(), 7U);
  write("sys/fs/cgroup/a/cpu.stat", "nonsense");
  EXPECT_EQ(times(), 3U);
}

TEST_F(CpuTimeTest, NonsenseIsNoLimit) {
  for (const char* text :
       {"", "\n", "x y\n", "100000\n", "0 0\n", "5 0\n", "-3 100\n", "1 2 3\n"}) {
    write("proc/self/cgroup", "::\nx\n0::");
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(read()) << text;
  }
}

TEST_F(CpuTimeTest, MemoryOfTheTightestGroup_IsFoundInBothVersions) {
  EXPECT_FALSE(memory_group(HostFiles(root_.root())));
  write("proc/self/cgroup", "0::/../a/b");
  write("sys/fs/cgroup/a/b/memory.max", "max");
  write("sys/fs/cgroup/a/b/memory.current", "4096");
  write("sys/fs/cgroup/a/memory.max", "65536");
  write("sys/fs/cgroup/memory.max", "131072");
  auto found = memory_group(HostFiles(root_.root()));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->group.name, "a/b");
  EXPECT_TRUE(found->group.outside);
  EXPECT_EQ(found->limit, Bytes{65536});
  EXPECT_EQ(found->limit_file, "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(found->used, Bytes{4096});
  write("proc/7/cgroup", "4:memory:/a\n0::/a/b");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712");
  found = memory_group(HostFiles(root_.root()), "7");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->group.folder(), "sys/fs/cgroup/memory/a") << "version 1 has the memory";
  EXPECT_FALSE(found->limit);
}

// Runs in a separate process: exits with 0 if it reads the group's limit.
[[noreturn]] void read_in(const test::CpuGroup& group) {
  if (!group.enter()) std::_Exit(0);  // not root, or no such groups here
  const auto limit = cpu_time_limit();
  // An enclosing group may be tighter.
  std::_Exit(limit && limit->cpus <= 1.5 && !limit->file.empty() ? 0 : 1);
}

TEST(CpuTime, IsReadInARealGroup) {
  const test::CpuGroup group(1.5);
  EXPECT_EXIT(read_in(group), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace
