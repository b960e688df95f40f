// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/delay_loop.h"

#include <gtest/gtest.h>

#include <string>

#include "core/sanitizers.h"
#include "measure/instruments/worker_pool.h"
#include "tests/support/disassembly.h"

namespace headrace::instruments {
namespace {

TEST(DelayLoop, ATurnTakesTheLeastTimeOfSeveralTries) {
  int tries = 0;
  const double ns = DelayLoop::ns_per_turn([&](std::uint64_t turns) {
    EXPECT_GT(turns, 10'000U) << "much longer than reading a clock";
    return static_cast<double>(turns) * (++tries == 3 ? 0.25 : 0.5);
  });
  EXPECT_DOUBLE_EQ(ns, 0.25);
  EXPECT_GT(tries, 8);
}

TEST(DelayLoop, PausesAreInTurnsOfTheCpusThatWait) {
  const DelayLoop alone({0.25});
  EXPECT_EQ(alone.pause(Nanoseconds{0}).turns, 0U);
  EXPECT_EQ(alone.pause(Nanoseconds{100}).turns, 400U);
  EXPECT_EQ(alone.pause(Nanoseconds{100}).time, Nanoseconds{100});
  EXPECT_EQ(DelayLoop({0.25, 0.75}).pause(Nanoseconds{100}).turns, 200U) << "slower together";
  EXPECT_EQ(DelayLoop({5.0}).pause(Nanoseconds{1}).turns, 1U);
  DelayLoop::run(0);
}

TEST(DelayLoop, IsTimedOnAllOfTheCpus) {
  const CpuSet all = usable_cpus();
  const auto loop = DelayLoop::timed_on({all.front(), all.back()});
  ASSERT_TRUE(loop) << loop.error().message;
  // The turns of any CPU of the last decades, at 0.1 to 100 GHz.
  EXPECT_GT(loop->pause(std::chrono::milliseconds{1}).turns, 1'000U);
  EXPECT_LT(loop->pause(std::chrono::milliseconds{1}).turns, 100'000'000U);
}

// Either would wait for the loads in flight.
TEST(DelayLoop, ReadsNoClockAndHasNoFence) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers add instructions of their own";
#endif
  int lines = 0;
  test::for_each_instruction("DelayLoop::run(", [&](const std::string&, const std::string& line) {
    ++lines;
    EXPECT_EQ(line.find("rdtsc"), std::string::npos) << line;
    EXPECT_EQ(line.find("fence"), std::string::npos) << line;
  });
  if (lines == 0) GTEST_SKIP() << "no objdump";
}

}  // namespace
}  // namespace headrace::instruments
