// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/delay_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "measure/instruments/ticks.h"

namespace headrace::instruments {
namespace {

constexpr std::uint64_t kCalibrated = 100'000;
constexpr int kTimes = 16;  // of which the fastest was not interrupted

}  // namespace

DelayLoop::DelayLoop() {
  const Ticks& ticks = Ticks::instance();
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kTimes; ++i) {
    const std::uint64_t begin = ticks.now();
    run(kCalibrated);
    least = std::min(least, ticks.nanoseconds(ticks.now() - begin));
  }
  ns_per_turn_ = std::max(least / kCalibrated, 1e-3);
}

const DelayLoop& DelayLoop::instance() {
  static const DelayLoop loop;
  return loop;
}

std::uint64_t DelayLoop::turns(Nanoseconds time) const {
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(time.count()) / ns_per_turn_));
}

// In assembly where we know it, so that no compiler takes the loop away or unrolls it.
__attribute__((noinline)) void DelayLoop::run(std::uint64_t turns) {
  if (turns == 0) return;
#if defined(__x86_64__)
  __asm__ volatile("1: decq %0\n\tjnz 1b" : "+r"(turns) : : "cc");
#elif defined(__aarch64__)
  __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(turns) : : "cc");
#else
  for (volatile std::uint64_t left = turns; left > 0;) left = left - 1;
#endif
}

}  // namespace headrace::instruments
