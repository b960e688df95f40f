// SPDX-License-Identifier: Apache-2.0
// A backend that only copies, for tests in which memory runs out: it allocates nothing.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "headrace/backend.h"

namespace headrace::test {

class PlainBackend final : public Backend {
 public:
  // Copies inside submit() if it `inlines`, else when it is polled.
  PlainBackend(std::vector<EngineId> engines, bool inlines) : inlines_(inlines) {
    facts_.name = "plain";
    facts_.engines = std::move(engines);
    facts_.max_piece = 64_MiB;
    facts_.max_in_flight = kMost;
    facts_.inline_below = inlines ? 2_MiB : 0_B;
    facts_.completes_itself = inlines;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (inlines_) {
        end(pieces[i], completion);
        continue;
      }
      const MutexLock lock(mutex_);
      if (count_ == kMost) return i;
      flights_[count_++] = {pieces[i], &completion};
    }
    return pieces.size();
  }
  std::size_t poll() override {
    std::array<std::pair<Piece, Completion*>, kMost> flights;
    std::size_t found = 0;
    {
      const MutexLock lock(mutex_);
      flights = flights_;
      found = std::exchange(count_, 0);
    }
    for (std::size_t i = 0; i < found; ++i) end(flights[i].first, *flights[i].second);
    return found;
  }
  std::atomic<int> failures = 0;  // how many of the next pieces fail

 private:
  static constexpr std::size_t kMost = 8;

  void end(const Piece& piece, Completion& completion) {
    if (failures.fetch_sub(1) > 0) {
      return completion.complete(piece.tag, Unexpected(Error{ErrorCode::io, "told"}));
    }
    std::memcpy(piece.to.memory(), piece.from.memory(), piece.to.length.value);
    completion.complete(piece.tag, {});
  }

  Capabilities facts_;
  const bool inlines_;
  Mutex mutex_;
  std::array<std::pair<Piece, Completion*>, kMost> flights_ GUARDED_BY(mutex_);
  std::size_t count_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::test
