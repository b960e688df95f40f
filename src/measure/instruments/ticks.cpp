#include "measure/instruments/ticks.h"

#include <time.h>

#include <algorithm>
#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

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
// Waits for loads before it (lfence) and keeps those after it back.
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

}  // namespace

Ticks::Ticks() : by_counter_(counter_is_steady()) {
  if (by_counter_) {
    const std::uint64_t clock = raw_clock();
    const std::uint64_t ticks = counter();
    std::uint64_t later = clock;
    while (later - clock < static_cast<std::uint64_t>(kCalibration.count())) later = raw_clock();
    ns_per_tick_ = static_cast<double>(later - clock) / static_cast<double>(counter() - ticks);
  }
  overhead_ = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t begin = now();
    overhead_ = std::min(overhead_, now() - begin);
  }
}

const Ticks& Ticks::instance() {
  static const Ticks ticks;
  return ticks;
}

std::uint64_t Ticks::now() const { return by_counter_ ? counter() : raw_clock(); }

}  // namespace headrace::instruments
