// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

namespace headrace::instruments {
namespace {

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

TEST(RunPinned, RunsNothingWhereAThreadMayNotRunOnItsCpu) {
  std::atomic<int> run{0};
  const CpuSet cpus = {usable_cpus().front(), 65000};
  const Status status = run_pinned(cpus, [&](std::size_t) { ++run; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::denied);
  EXPECT_NE(status.error().message.find("on CPU 65000"), std::string::npos);
  EXPECT_EQ(run, 0);
  EXPECT_FALSE(run_together(cpus, [&](std::size_t) { ++run; }));
}

// For an unprivileged user with a limit of one thread: exits with 0 if no part ran.
[[noreturn]] void run_without_threads() {
  const rlimit one{.rlim_cur = 1, .rlim_max = 1};
  if (setrlimit(RLIMIT_NPROC, &one) != 0 || setuid(65534) != 0) std::_Exit(0);
  std::atomic<int> run{0};
  const CpuSet cpus(200, usable_cpus().front());
  const Status status = run_pinned(cpus, [&](std::size_t) { ++run; });
  const bool refused = !status && status.error().code == ErrorCode::exhausted;
  std::_Exit(refused && run == 0 ? 0 : 1);
}

TEST(RunPinned, RunsNothingWhereAThreadCannotBeStarted) {
  EXPECT_EXIT(run_without_threads(), testing::ExitedWithCode(0), "");
}

TEST(RunTogether, EveryPartBeginsWhenAllHave) {
  const CpuSet cpus(3, usable_cpus().front());
  std::atomic<int> begun{0};
  const auto share = run_together(cpus, [&](std::size_t) { ++begun; });
  ASSERT_TRUE(share) << share.error().message;
  EXPECT_EQ(begun, 3);
  EXPECT_GT(*share, 0);
  EXPECT_LE(*share, 1.05);
}

TEST(RunTogether, APartThatFindsNoMemoryIsAnError) {
  const CpuSet cpus(2, usable_cpus().front());
  const auto share = run_together(cpus, [&](std::size_t i) {
    if (i == 1) throw std::bad_alloc();
  });
  ASSERT_FALSE(share);
  EXPECT_EQ(share.error().code, ErrorCode::exhausted);
}

// CPUs 0 and 2 are threads of one core.
TEST(WorkerPoolTest, TheObserverIsNoThreadOfTheFirstCore) {
  Machine machine;
  machine.caches = {{.level = 1, .size = 32_KiB, .cpus = {0, 2}},
                    {.level = 3, .size = 32_MiB, .cpus = {0, 1, 2, 3}}};
  EXPECT_TRUE(share_core(machine, 0, 2));
  EXPECT_FALSE(share_core(machine, 0, 1));
  EXPECT_EQ(observer_of(machine, {0, 1, 2, 3}), 1u) << "interrupts come to CPU 0";
  EXPECT_EQ(observer_of(machine, {0, 2, 3}), 3u) << "2 is a thread of its core";
  EXPECT_EQ(observer_of(machine, {0, 2}), 0u);
}

TEST(WorkerPoolTest, CountsDoubleUpToAll) {
  EXPECT_EQ(thread_counts(6), (std::set<std::size_t>{1, 2, 4, 6}));
  EXPECT_TRUE(thread_counts(0).empty());
}

}  // namespace
}  // namespace headrace::instruments
