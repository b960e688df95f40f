#include "measure/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

namespace headrace {
namespace {

TEST(CacheToPass, CountsEachLastLevelCacheOnce) {
  Machine machine;
  machine.caches = {{.level = 2, .size = 1_MiB, .cpus = {0}},
                    {.level = 3, .size = 32_MiB, .cpus = {0, 1, 2, 3}},
                    {.level = 3, .size = 96_MiB, .cpus = {4, 5}}};
  EXPECT_EQ(cache_to_pass(machine, {0}), 32_MiB);
  EXPECT_EQ(cache_to_pass(machine, {0, 1, 3}), 32_MiB);
  EXPECT_EQ(cache_to_pass(machine, {0, 1, 4, 5}), 128_MiB);
  EXPECT_EQ(cache_to_pass(machine, {9}), 32_MiB) << "unknown";
}

TEST(CheckIsHere, RefusesOtherMachines) {
  EXPECT_TRUE(check_is_here(*Machine::discover()));
  EXPECT_EQ(check_is_here(*Machine::load("xeon-max")).error().code, ErrorCode::unsupported);
}

TEST(RunPinned, RunsEachPartOnceOnItsCpu) {
  const CpuSet cpus = usable_cpus();
  std::mutex mutex;
  std::vector<std::pair<std::size_t, CpuSet>> seen;
  ASSERT_TRUE(run_pinned(cpus, [&](std::size_t part) {
    const CpuSet own = usable_cpus();
    const std::lock_guard lock(mutex);
    seen.emplace_back(part, own);
  }));
  std::ranges::sort(seen);
  ASSERT_EQ(seen.size(), cpus.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i], std::pair(i, CpuSet{cpus[i]}));
  }
}

// CPUs 0 and 2 are threads of one core.
TEST(TeamTest, OtherCoresComeBeforeTheOtherThread) {
  Machine machine;
  machine.caches = {{.level = 1, .size = 32_KiB, .cpus = {0, 2}},
                    {.level = 3, .size = 32_MiB, .cpus = {0, 1, 2, 3}}};
  EXPECT_TRUE(share_core(machine, 0, 2));
  EXPECT_FALSE(share_core(machine, 0, 1));
  EXPECT_EQ(others_than(machine, 0, {0, 1, 2, 3}), (std::vector<unsigned>{1, 3, 2}));
  EXPECT_EQ(others_than(machine, 1, {0, 1, 2, 3}), (std::vector<unsigned>{0, 2, 3}));
}

TEST(TeamTest, SizesDoubleUpToAll) {
  EXPECT_EQ(team_sizes(6), (std::set<std::size_t>{1, 2, 4, 6}));
  EXPECT_TRUE(team_sizes(0).empty());
}

}  // namespace
}  // namespace headrace
