// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/transfers.h"
#include "headrace/waiting.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/fail.h"
#include "core/mutex.h"
#include "headrace/clock.h"

namespace headrace::instruments {
namespace {

// Between two polls of a backend that needs polling: short compared with any storage access.
constexpr Nanoseconds kPollEvery = std::chrono::microseconds{20};
// Between two checks of a backend that reports by itself: only a bound.
constexpr Nanoseconds kCheckEvery = std::chrono::milliseconds{100};

// Counts completed pieces, and keeps the first failure and the time of each piece.
class Returns final : public Completion {
 public:
  Returns(std::size_t pieces, Histogram& each_ns) : begun_(pieces), each_ns_(each_ns) {}

  // Call it before the piece is submitted.
  void begins(std::size_t tag) { begun_[tag] = system_clock().now(); }

  void complete(std::uint64_t tag, Status outcome) noexcept override {
    const Nanoseconds took = system_clock().now() - begun_[tag];
    each_ns_.record(static_cast<std::uint64_t>(took.count()));
    if (!outcome) {
      MutexLock lock(mutex_);
      if (!failure_) failure_ = outcome.error();
    }
    // Takes only the address: once the waiter has seen the count, this object may be gone.
    const auto& word = count_;
    count_.fetch_add(1);
    system_waiting().wake_all(word);
  }

  std::uint32_t count() const { return count_.load(); }
  // Waits until count() differs from `seen`, or a bound has passed.
  void wait(std::uint32_t seen, Nanoseconds bound) { system_waiting().wait(count_, seen, bound); }
  std::optional<Error> failure() {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  std::vector<Nanoseconds> begun_;  // by tag
  Histogram& each_ns_;
  Mutex mutex_;
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace

Result<Transferred> transfer_within(Backend& backend, std::span<const Piece> pieces,
                                    std::size_t depth, Nanoseconds limit, Histogram& each_ns) {
  CHECK(depth > 0);
  Returns returns(pieces.size(), each_ns);
  const bool polled = !backend.capabilities().completes_itself;
  std::optional<Error> refused;
  bool over = false;
  std::size_t submitted = 0;
  const Nanoseconds start = system_clock().now();
  // Every accepted piece ends within the backend's own bound, and so does this loop.
  while (returns.count() < (refused || over ? submitted : pieces.size())) {
    over = over || (submitted > 0 && system_clock().now() - start >= limit);
    const std::uint32_t seen = returns.count();
    std::size_t accepted = 0;
    const std::size_t room = std::min(depth - (submitted - seen), pieces.size() - submitted);
    if (room > 0 && !refused && !over) {
      for (std::size_t i = 0; i < room; ++i) returns.begins(submitted + i);
      if (auto taken = backend.submit(pieces.subspan(submitted, room), returns)) {
        accepted = *taken;
      } else {
        refused = taken.error();
      }
    }
    submitted += accepted;
    if (polled) backend.poll();
    if (accepted == 0 && submitted > returns.count()) {
      returns.wait(seen, polled ? kPollEvery : kCheckEvery);
    }
  }
  const Nanoseconds took = system_clock().now() - start;
  if (refused) return Unexpected(*refused);
  if (const auto failure = returns.failure()) return Unexpected(*failure);
  return Transferred{std::max(took, Nanoseconds{1}), submitted};
}

}  // namespace headrace::instruments
