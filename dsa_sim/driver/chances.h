// SPDX-License-Identifier: Apache-2.0
// With what probability descriptors of a served device fail: changed while it runs, drawn from a
// seed.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/mutex.h"
#include "headrace/random.h"
#include "tests/support/dsa/dsa.h"

namespace headrace::emulator {

// Thread-safe.
class Chances {
 public:
  explicit Chances(std::uint64_t seed) : random_(seed) {}

  // "fail", "fault-pages", "lose-records" or "unknown-statuses". False: no such chance. Requires:
  // 0 <= chance <= 1.
  bool set(std::string_view what, double chance);
  // For DeviceFaults::script.
  InjectedFault draw(const Descriptor& descriptor, std::uint64_t number);

 private:
  Mutex mutex_;
  DeviceFaults faults_ GUARDED_BY(mutex_);
  Random random_ GUARDED_BY(mutex_);
};

}  // namespace headrace::emulator
