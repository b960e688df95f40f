// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/delay_loop.h"

#include <gtest/gtest.h>

#include <string>

#include "core/sanitizers.h"
#include "tests/support/disassembly.h"

namespace headrace::instruments {
namespace {

TEST(DelayLoop, LongerTimesAreMoreTurns) {
  const DelayLoop& loop = DelayLoop::instance();
  EXPECT_EQ(loop.turns(Nanoseconds{0}), 0u);
  EXPECT_GE(loop.turns(Nanoseconds{1}), 1u);
  const double once = static_cast<double>(loop.turns(std::chrono::microseconds{10}));
  EXPECT_NEAR(static_cast<double>(loop.turns(std::chrono::microseconds{100})), 10 * once, 11);
  DelayLoop::run(0);
  DelayLoop::run(1000);
}

// Either would wait for the loads that are on their way.
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
