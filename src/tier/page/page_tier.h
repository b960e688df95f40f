// SPDX-License-Identifier: Apache-2.0
// The implementation of PageTier; tests open it over a fake kernel. Its functions may throw
// std::bad_alloc. Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/tier/page_tier.h"
#include "host/kernel.h"
#include "tier/page/slow_memory.h"
#include "tier/page/work_guard.h"
#include "tier/source.h"

namespace headrace {

class PageTier::Inside {
 public:
  // Errors: invalid: contradictory options.
  static Status check(const PageTierOptions& options);
  // As PageTier::open(). Requires: `kernel` outlives it.
  static Result<std::unique_ptr<Inside>> open(const PageTierOptions& options, Kernel& kernel);
  // Without a source of its own: the caller reports memory and touches with see().
  static Result<std::unique_ptr<Inside>> open(const PageTierOptions& options, Kernel& kernel,
                                              std::unique_ptr<SlowMemory> slow);
  // False in a child of fork(), which must not touch the state.
  bool here() const { return origin_.here(); }

  // Added memory, and the unit in which it moves.
  struct Managed : TrackedRange {
    std::uint64_t chunk = 0;  // bytes, a power of two of pages
  };
  // Replaces the managed memory by these ranges. Requires: ascending.
  void see(std::vector<Managed> ranges, const HotnessSample& sample);
  // Bytes moved by decisions since the start, and the CPU time of the moves.
  struct Moved {
    Bytes out;
    Bytes in;
    Nanoseconds cpu{};
  };
  Moved moved() const;

  Status add(std::span<const std::byte> memory);
  Status remove(std::span<const std::byte> memory);
  Result<TierStep> step(std::optional<std::uint64_t> work = {});
  std::vector<TierDecision> decisions() const;

 private:
  Inside(const PageTierOptions& options, Kernel& kernel);

  Result<Managed> managed(std::span<const std::byte> memory) const;
  Status heat_up() REQUIRES(mutex_);
  Result<std::vector<ChunkPlace>> places() const REQUIRES(mutex_);
  double heat_of(const TrackedRange& range) const REQUIRES(mutex_);
  // The heat of the managed part of the aligned chunk that begins at `begin`.
  double heat_of_managed(std::uintptr_t begin) const REQUIRES(mutex_);
  TrackedRange chunk_at(std::uintptr_t begin) const REQUIRES(mutex_);
  // Size of the largest unit that moves as a whole.
  Bytes largest_chunk() const REQUIRES(mutex_);
  // The policy with its budget reduced to the free memory of the fast tier. `places`: all chunks.
  TierPolicy policy_for(std::span<const ChunkPlace> places) const REQUIRES(mutex_);
  // Asks the guard whether chunks may move, and which moves to undo.
  void guard(TierStep& step, std::optional<std::uint64_t> work, Nanoseconds now) REQUIRES(mutex_);
  // Calls decide(). While the guard stops moves, decides only moves that undo and moves that the
  // budget needs.
  std::vector<TierDecision> decide_now(const std::vector<ChunkPlace>& places) const
      REQUIRES(mutex_);
  // Carries out the decisions and adds refused moves to `step`. Promotes no more than demotions
  // freed, and drops the decisions beyond that.
  Status carry_out(TierStep& step) REQUIRES(mutex_);
  // Promotes (`in`) or demotes, and adds refused moves to `step`.
  Status move(TierStep& step, bool in) REQUIRES(mutex_);
  // Adds the allowance earned since the last step.
  void earn(Nanoseconds elapsed) REQUIRES(mutex_);
  void back_off(std::uintptr_t chunk) REQUIRES(mutex_);

  // Backoff of a chunk that refused to move.
  struct BackOff {
    unsigned length = 0;  // steps
    unsigned left = 0;
  };

  const Origin origin_;
  const PageTierOptions options_;
  Kernel& kernel_;
  const Clock& clock_;
  std::unique_ptr<HotnessSource> source_;  // null: see() reports touches
  std::unique_ptr<SlowMemory> slow_;
  mutable Mutex mutex_;
  Hotness hotness_ GUARDED_BY(mutex_);
  std::vector<Managed> ranges_ GUARDED_BY(mutex_);  // by address
  double allowance_ GUARDED_BY(mutex_) = 0;         // bytes
  std::unordered_map<std::uintptr_t, BackOff> backed_off_ GUARDED_BY(mutex_);
  std::optional<Nanoseconds> stepped_ GUARDED_BY(mutex_);
  WorkGuard guard_ GUARDED_BY(mutex_);
  bool resting_ GUARDED_BY(mutex_) = false;  // the guard stopped moves
  // For each chunk that moved in the guard's span: whether it was in fast memory before. While
  // moves rest: the chunks to restore to that state.
  std::unordered_map<std::uintptr_t, bool> were_in_ GUARDED_BY(mutex_);
  std::deque<TierDecision> log_ GUARDED_BY(mutex_);
  Moved moved_ GUARDED_BY(mutex_);
};

}  // namespace headrace
