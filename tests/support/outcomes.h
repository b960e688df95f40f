// SPDX-License-Identifier: Apache-2.0
// Records the outcomes of pieces in order, and waits for them with a bound. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "headrace/backend.h"
#include "headrace/clock.h"

namespace headrace::test {

// Far above the time of any piece here, also under sanitizers on a busy machine.
inline constexpr Nanoseconds kBound = std::chrono::seconds{60};

class Outcomes : public Completion {
 public:
  // Allocates nothing for the first `pieces` of them.
  explicit Outcomes(std::size_t pieces = 0) {
    const MutexLock lock(mutex_);
    all_.reserve(pieces);
  }
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    const MutexLock lock(mutex_);
    all_.emplace_back(tag, std::move(outcome));
    changed_.notify_all();
  }
  // Waits until `pieces` have ended; false if they have not.
  bool wait(std::size_t pieces) const {
    const Nanoseconds end = system_clock().now() + kBound;
    const MutexLock lock(mutex_);
    while (all_.size() < pieces && system_clock().now() < end) {
      changed_.wait_for(mutex_, std::chrono::milliseconds{100});
    }
    return all_.size() >= pieces;
  }
  std::size_t count() const {
    const MutexLock lock(mutex_);
    return all_.size();
  }
  // The tags of those that succeeded, and of those that failed.
  std::vector<std::uint64_t> well() const { return tags(true); }
  std::vector<std::uint64_t> failed() const { return tags(false); }
  // The outcome of a piece; an error if it has not ended exactly once.
  Status of(std::uint64_t tag) const {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(all_, tag, &Ended::first);
    if (std::ranges::count(all_, tag, &Ended::first) != 1) {
      return Unexpected(Error{ErrorCode::absent, "has not ended once"});
    }
    return found->second;
  }
  // The last error.
  Error last() const {
    const MutexLock lock(mutex_);
    Error last;
    for (const Ended& ended : all_) {
      if (!ended.second) last = ended.second.error();
    }
    return last;
  }

 private:
  using Ended = std::pair<std::uint64_t, Status>;
  std::vector<std::uint64_t> tags(bool well) const {
    const MutexLock lock(mutex_);
    std::vector<std::uint64_t> made;
    for (const Ended& ended : all_) {
      if (ended.second.has_value() == well) made.push_back(ended.first);
    }
    return made;
  }
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<Ended> all_ GUARDED_BY(mutex_);
};

// Waits until `holds` does; false if it does not within the bound.
template <class Holds>
bool eventually(Holds holds) {
  const Nanoseconds end = system_clock().now() + kBound;
  while (!holds() && system_clock().now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return holds();
}

}  // namespace headrace::test
