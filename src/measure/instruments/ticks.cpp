// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/ticks.h"

#include <time.h>

#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "core/fork.h"

namespace headrace::instruments {
namespace {

constexpr Nanoseconds kCalibration = std::chrono::milliseconds{20};

std::uint64_t raw_clock() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

#if defined(__x86_64__)
// Waits for earlier loads (lfence) and holds back later ones.
std::uint64_t counter() {
  unsigned cpu = 0;
  const std::uint64_t ticks = __rdtscp(&cpu);
  _mm_lfence();
  return ticks;
}

bool counter_is_steady() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kPowerManagement = 0x80000007;  // EDX bit 8: invariant TSC
  return __get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
}
#else
std::uint64_t counter() { return raw_clock(); }
bool counter_is_steady() { return false; }
#endif

MadeOnce<Ticks> the_ticks(kRankOfTicks);

}  // namespace

SameMoment read_bracketed(const ReadClock& clock, const ReadClock& counter) {
  constexpr int kTries = 32;
  SameMoment best{};
  std::uint64_t narrowest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = clock();
    const std::uint64_t between = counter();
    const std::uint64_t width = clock() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {.clock = before + width / 2, .counter = between};
    }
  }
  return best;
}

double ns_per_tick(const ReadClock& clock, const ReadClock& counter, Nanoseconds time) {
  const SameMoment begin = read_bracketed(clock, counter);
  while (clock() - begin.clock < static_cast<std::uint64_t>(time.count())) {
  }
  const SameMoment end = read_bracketed(clock, counter);
  return static_cast<double>(end.clock - begin.clock) /
         static_cast<double>(end.counter - begin.counter);
}

Ticks::Ticks() : by_counter_(counter_is_steady()) {
  if (by_counter_) ns_per_tick_ = instruments::ns_per_tick(raw_clock, counter, kCalibration);
  overhead_ = least_step([this] { return now(); });
}

const Ticks& Ticks::instance() {
  return the_ticks.get([] { return Ticks(); });
}

std::uint64_t Ticks::now() const { return by_counter_ ? counter() : raw_clock(); }

}  // namespace headrace::instruments
