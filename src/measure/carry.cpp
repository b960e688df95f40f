#include "measure/carry.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "core/check.h"
#include "core/mutex.h"
#include "headrace/clock.h"

namespace headrace {
namespace {

// Between two looks at a backend that has to be polled: short against any storage access.
constexpr Nanoseconds kPollEvery = std::chrono::microseconds{20};
// Between two looks at one that reports by itself: only a bound.
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds{100};

// Counts what came back and keeps the first failure.
class Returns final : public Completion {
 public:
  void complete(std::uint64_t, Status outcome) noexcept override {
    if (!outcome) {
      MutexLock lock(mutex_);
      if (!failure_) failure_ = outcome.error();
    }
    // The address only: after the count is seen by the waiter this object may be gone.
    const auto& word = count_;
    count_.fetch_add(1);
    system_waiting().wake_all(word);
  }

  std::uint32_t count() const { return count_.load(); }
  // Waits until count() is no longer `seen`, or a bound has passed.
  void wait(std::uint32_t seen, Nanoseconds bound) { system_waiting().wait(count_, seen, bound); }
  std::optional<Error> failure() {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  Mutex mutex_;
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace

Result<Nanoseconds> carry(Backend& backend, std::span<const Piece> pieces, std::size_t depth) {
  CHECK(depth > 0);
  const bool polled = !backend.capabilities().completes_itself;
  Returns returns;
  std::optional<Error> refused;
  std::size_t submitted = 0;
  const Nanoseconds start = system_clock().now();
  // Every accepted piece ends within the backend's own bound, so this loop does, too.
  while (returns.count() < (refused ? submitted : pieces.size())) {
    const std::uint32_t seen = returns.count();
    std::size_t accepted = 0;
    const std::size_t room = std::min(depth - (submitted - seen), pieces.size() - submitted);
    if (room > 0 && !refused) {
      if (auto taken = backend.submit(pieces.subspan(submitted, room), returns)) {
        accepted = *taken;
      } else {
        refused = taken.error();
      }
    }
    submitted += accepted;
    if (polled) backend.poll();
    if (accepted == 0 && submitted > returns.count()) {
      returns.wait(seen, polled ? kPollEvery : kLookEvery);
    }
  }
  const Nanoseconds took = system_clock().now() - start;
  if (refused) return std::unexpected<Error>(*refused);
  if (const auto failure = returns.failure()) return std::unexpected<Error>(*failure);
  return std::max(took, Nanoseconds{1});
}

std::vector<Piece> cut(const Extent& to, const Extent& from, EngineId engine, Bytes piece) {
  CHECK(to.length == from.length && piece.value > 0);
  std::vector<Piece> pieces;
  for (std::uint64_t at = 0; at < from.length.value; at += piece.value) {
    const Bytes length{std::min(piece.value, from.length.value - at)};
    pieces.push_back({.from = from.part(at, length),
                      .to = to.part(at, length),
                      .engine = engine,
                      .tag = pieces.size()});
  }
  return pieces;
}

}  // namespace headrace
