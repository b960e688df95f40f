// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/delay_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/check.h"
#include "core/fail.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

constexpr std::uint64_t kTimed = 100'000;
constexpr int kTimes = 16;

}  // namespace

double DelayLoop::ns_per_turn(const std::function<double(std::uint64_t turns)>& run) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kTimes; ++i) least = std::min(least, run(kTimed));
  return least / kTimed;
}

Result<DelayLoop> DelayLoop::timed_on(const CpuSet& cpus) {
  const Ticks& ticks = Ticks::instance();
  std::vector<double> found(cpus.size());
  HEADRACE_TRY(const double share, run_together(cpus, [&](std::size_t i) {
                 found[i] = ns_per_turn([&](std::uint64_t turns) {
                   const std::uint64_t begin = ticks.now();
                   run(turns);
                   return ticks.nanoseconds(ticks.now() - begin);
                 });
               }));
  (void)share;  // the fastest try had its CPU
  return DelayLoop(found);
}

DelayLoop::DelayLoop(const std::vector<double>& of_cpus) {
  CHECK(!of_cpus.empty());
  const double sum = std::accumulate(of_cpus.begin(), of_cpus.end(), 0.0);
  ns_per_turn_ = std::max(sum / static_cast<double>(of_cpus.size()), 1e-3);
}

Pause DelayLoop::pause(Nanoseconds time) const {
  const double turns = std::ceil(static_cast<double>(time.count()) / ns_per_turn_);
  return {.time = time, .turns = static_cast<std::uint64_t>(turns)};
}

// In assembly where supported, so that no compiler removes or unrolls the loop.
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
