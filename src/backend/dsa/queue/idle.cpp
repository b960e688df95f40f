// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/idle.h"

#include <cstdint>
#include <thread>

#include "backend/dsa/queue/character_device.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace::dsa {
namespace {

#if defined(__x86_64__)
// Some 2000 cycles of the time-stamp counter; the system may allow less (umwait_control/max_time).
constexpr std::uint64_t kCycles = 2000;
// The state that wakes up faster, 0.25 us against 0.5 (CacheLib's guide to DTO).
constexpr unsigned kLightly = 1;

__attribute__((target("waitpkg"))) void sleep_lightly() { _tpause(kLightly, __rdtsc() + kCycles); }
#else
void sleep_lightly() {}
#endif

const bool kCanSleep = cpu_instructions().waitpkg;

}  // namespace

void idle_briefly() {
  if (kCanSleep) {
    sleep_lightly();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace headrace::dsa
