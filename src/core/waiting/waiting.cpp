// SPDX-License-Identifier: Apache-2.0
#include "headrace/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "headrace/clock.h"

namespace headrace {
namespace {

// Longer than any program runs, and short enough to be added to a time.
constexpr Nanoseconds kLongest = std::chrono::years{10};

class FutexWaiting final : public Waiting {
 public:
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            Nanoseconds timeout) override {
    static_assert(sizeof(word) == sizeof(std::uint32_t));
    // Waits until a point in time, so that signals do not change the length of the wait.
    const Nanoseconds end = system_clock().now() + std::clamp(timeout, Nanoseconds{0}, kLongest);
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(end);
    const timespec limit{.tv_sec = whole.count(), .tv_nsec = (end - whole).count()};
    while (word.load() == seen) {
      const long woken = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, seen, &limit, nullptr,
                                 FUTEX_BITSET_MATCH_ANY);
      if (woken != 0 && errno == ETIMEDOUT) break;
      // If a sandbox forbids the system call, the clock ends the wait.
      if (woken != 0 && errno != EINTR && errno != EAGAIN && system_clock().now() >= end) break;
    }
    return word.load() != seen;
  }

  void wake_all(const std::atomic<std::uint32_t>& word) override {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
};

}  // namespace

Waiting& system_waiting() {
  static FutexWaiting waiting;
  return waiting;
}

}  // namespace headrace
