#include "headrace/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace headrace {
namespace {

class SystemClock final : public Clock {
 public:
  Nanoseconds now() const override {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::chrono::seconds{t.tv_sec} + Nanoseconds{t.tv_nsec};
  }
};

class FutexWaiting final : public Waiting {
 public:
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            Nanoseconds timeout) override {
    static_assert(sizeof(word) == sizeof(std::uint32_t));
    const auto bounded = std::max(timeout, Nanoseconds{0});
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(bounded);
    const timespec limit{.tv_sec = whole.count(), .tv_nsec = (bounded - whole).count()};
    if (word.load() == seen) {
      syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
    }
    return word.load() != seen;
  }

  void wake_all(const std::atomic<std::uint32_t>& word) override {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

Waiting& system_waiting() {
  static FutexWaiting waiting;
  return waiting;
}

}  // namespace headrace
