// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/timing.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::cache_bench {
namespace {

TEST(RunThreads, Operations_AreCountedPerThread) {
  const Timing timing =
      run_threads(3, {.operations = 100}, [](unsigned thread, const Until& until) {
        Tally tally;
        while (!until.enough(tally.operations)) ++tally.operations;
        tally.wrong = thread;
        return tally;
      });
  EXPECT_EQ(timing.tally.operations, 300U);
  EXPECT_EQ(timing.tally.wrong, 3U);
  EXPECT_GT(timing.thread_seconds, 0);
  EXPECT_GT(timing.seconds, 0);
}

TEST(RunThreads, EndsWhenTheTimeIsOver) {
  const Timing timing = run_threads(2, {.seconds = 0.01}, [](unsigned, const Until& until) {
    Tally tally;
    while (!until.enough(tally.operations)) ++tally.operations;
    return tally;
  });
  EXPECT_GT(timing.tally.operations, 0U);
  EXPECT_GT(timing.seconds, 0);
}

TEST(ResidentBytes, GrowWithWhatIsTouched) {
  const std::uint64_t before = resident_bytes();
  std::vector<char> bytes(64 << 20, 1);
  EXPECT_GE(resident_bytes(), before + (32 << 20)) << static_cast<int>(bytes[5]);
}

}  // namespace
}  // namespace headrace::cache_bench
