// SPDX-License-Identifier: Apache-2.0
// Bounds of time that a pause of the process does not use up.
//
// A process may stand still for any time (SIGSTOP, a debugger, a suspended job, a paused virtual
// machine). What it waits for has often come meanwhile, only nobody has looked. So whoever judges
// that something is late counts the time in which he could have noticed. Single-thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace {

// The time during which its owner was there: it looks again and again, and what passed since the
// last look does not count if that is longer ago than `longest`.
class AttendedTime {
 public:
  AttendedTime(const Clock& clock, Nanoseconds longest)
      : clock_(clock), longest_(longest), last_(clock.now()) {}

  // Looks. Begins at 0.
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

// How long somebody goes on waiting for a word to change. Counted by the clock, and by the sleeps
// themselves, so that it ends under a clock that stands still.
class Patience {
 public:
  Patience(const Clock& clock, Waiting& waiting, Nanoseconds bound)
      : time_(clock, 2 * kLongestSleep), waiting_(waiting), bound_(bound) {}

  Nanoseconds left() { return bound_ - (spent() - spent_before_); }
  bool over() { return left() <= Nanoseconds{0}; }

  // Sleeps until `word` no longer holds `seen`, `most` has passed, or nothing is left. May return
  // early; the caller looks again.
  void sleep(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
             Nanoseconds most = kLongestSleep) {
    const Nanoseconds asked = std::min({most, left(), kLongestSleep});
    const Nanoseconds before = time_.now();
    const bool changed = waiting_.wait(word, seen, std::max(asked, Nanoseconds{0}));
    const Nanoseconds took = time_.now() - before;
    if (!changed && took < asked) unseen_ += asked - took;
  }
  // Something has come: the whole bound is left again.
  void renew() { spent_before_ = spent(); }
  // Nothing is left.
  void give_up() { unseen_ += std::max(left(), Nanoseconds{0}); }

 private:
  // A sleep is cut into such, each of which counts at most as long: a pause counts as one of them.
  static constexpr Nanoseconds kLongestSleep = std::chrono::seconds{1};

  Nanoseconds spent() { return time_.now() + unseen_; }

  AttendedTime time_;
  Waiting& waiting_;
  const Nanoseconds bound_;
  Nanoseconds unseen_{0};  // slept, though the clock did not say so
  Nanoseconds spent_before_{0};
};

}  // namespace headrace
