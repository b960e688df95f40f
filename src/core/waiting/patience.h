// SPDX-License-Identifier: Apache-2.0
// Time bounds that a pause of the process does not consume.
//
// A process may be stopped for any time (SIGSTOP, a debugger, a suspended job, a paused virtual
// machine). The awaited event has often happened meanwhile, but the process could not notice it. So
// a time-out counts only time in which the process was able to notice. Single-thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "headrace/clock.h"
#include "headrace/units.h"
#include "headrace/waiting.h"

namespace headrace {

// Counts the time in which its owner looked regularly. Time since the previous look does not count
// if that look was longer ago than `longest`.
class AttendedTime {
 public:
  AttendedTime(const Clock& clock, Nanoseconds longest)
      : clock_(clock), longest_(longest), last_(clock.now()) {}

  // Looks, and returns the time counted so far. Begins at 0.
  Nanoseconds now() {
    const Nanoseconds read = clock_.now();
    if (read - last_ <= longest_) attended_ += read - last_;
    last_ = read;
    return attended_;
  }

 private:
  const Clock& clock_;
  const Nanoseconds longest_;
  Nanoseconds last_;
  Nanoseconds attended_{0};
};

// The remaining time of a wait for a word to change. Counted by the clock and by the sleeps
// themselves, so it ends even under a clock that stands still.
class Patience {
 public:
  Patience(const Clock& clock, Waiting& waiting, Nanoseconds bound)
      : time_(clock, 2 * kLongestSleep), waiting_(waiting), bound_(bound) {}

  Nanoseconds left() { return bound_ - (spent() - spent_before_); }
  bool over() { return left() <= Nanoseconds{0}; }

  // Sleeps until `word` no longer holds `seen`, `most` has passed, or no time remains. May return
  // early; the caller checks again.
  void sleep(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
             Nanoseconds most = kLongestSleep) {
    const Nanoseconds asked = std::min({most, left(), kLongestSleep});
    const Nanoseconds before = time_.now();
    const bool changed = waiting_.wait(word, seen, std::max(asked, Nanoseconds{0}));
    const Nanoseconds took = time_.now() - before;
    if (!changed && took < asked) unseen_ += asked - took;
  }
  // Restores the whole bound, after an event.
  void renew() { spent_before_ = spent(); }
  // Uses up the bound.
  void give_up() { unseen_ += std::max(left(), Nanoseconds{0}); }

 private:
  // Long sleeps are cut into sleeps of this length, which each count at most this long. So a pause
  // of the process counts as one of them.
  static constexpr Nanoseconds kLongestSleep = std::chrono::seconds{1};

  Nanoseconds spent() { return time_.now() + unseen_; }

  AttendedTime time_;
  Waiting& waiting_;
  const Nanoseconds bound_;
  Nanoseconds unseen_{0};  // slept, but not counted by the clock
  Nanoseconds spent_before_{0};
};

}  // namespace headrace
