// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/cpu_share.h"

#include <gtest/gtest.h>

#include <thread>

namespace headrace::instruments {
namespace {

// Works until the calling thread has used `wanted` CPU time.
void work(double wanted) {
  const CpuTime own = CpuTime::of_thread();
  while (own.seconds() < wanted) {
  }
}

TEST(CpuTimeTest, OfTheProcessCountsOtherThreadsAndOfTheThreadNone) {
  const CpuTime all = CpuTime::of_process();
  const CpuTime own = CpuTime::of_thread();
  std::thread other([] { work(0.03); });
  other.join();
  EXPECT_LT(own.seconds(), 0.02);
  EXPECT_GE(all.seconds(), 0.03);
  work(0.03);
  EXPECT_GE(own.seconds(), 0.03);
  EXPECT_GE(all.seconds(), 0.06);
  EXPECT_GE(own.per_gb(1e6), 30) << "0.03 s for a thousandth";
}

}  // namespace
}  // namespace headrace::instruments
