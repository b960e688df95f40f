// SPDX-License-Identifier: Apache-2.0
// Waiting under a ManualClock: nothing runs by itself there, so a sleep only advances the clock.
#pragma once

#include <atomic>
#include <functional>

#include "headrace/clock.h"
#include "headrace/waiting.h"

namespace headrace::test {

class ManualWaiting final : public Waiting {
 public:
  explicit ManualWaiting(ManualClock& clock) : clock_(clock) {}
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            Nanoseconds timeout) override {
    if (word.load() == seen) clock_.advance(timeout);
    if (asleep) asleep();
    return word.load() != seen;
  }
  void wake_all(const std::atomic<std::uint32_t>&) override {}

  std::function<void()> asleep;  // called during each wait

 private:
  ManualClock& clock_;
};

}  // namespace headrace::test
