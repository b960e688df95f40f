// SPDX-License-Identifier: Apache-2.0
// The inside of PageTier, which tests open over a kernel of their own. Thread-safe.
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
#include "tier/kernel.h"
#include "tier/page/slow_memory.h"
#include "tier/page/work_guard.h"
#include "tier/source.h"

namespace headrace {

class PageTier::Inside {
 public:
  // invalid: options that make no sense.
  static Status check(const PageTierOptions& options);
  // As PageTier::open(); `kernel` must outlive it.
  static Result<std::unique_ptr<Inside>> open(const PageTierOptions& options, Kernel& kernel);
  // With no source of its own: see() tells what there is, and what of it was touched.
  static Result<std::unique_ptr<Inside>> open(const PageTierOptions& options, Kernel& kernel,
                                              std::unique_ptr<SlowMemory> slow);
  // False in a child, which leaves it as it is.
  bool here() const { return origin_.here(); }

  // Memory that was added, and what of it moves as a whole.
  struct Managed : TrackedRange {
    std::uint64_t chunk = 0;  // bytes, a power of two of pages
  };
  // Manages these from now on and no others, ascending.
  void see(std::vector<Managed> ranges, const HotnessSample& sample);
  // What moved of whatever was decided since the start, and the CPU time that it took.
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

  // They may throw std::bad_alloc.
  static Result<std::unique_ptr<Inside>> open_or_throw(const PageTierOptions& options,
                                                       Kernel& kernel);
  Status add_or_throw(std::span<const std::byte> memory);
  Status remove_or_throw(std::span<const std::byte> memory);
  Result<TierStep> step_or_throw(std::optional<std::uint64_t> work);

  Result<Managed> managed(std::span<const std::byte> memory) const;
  Status heat_up() REQUIRES(mutex_);
  Result<std::vector<ChunkPlace>> places() const REQUIRES(mutex_);
  double heat_of(const TrackedRange& range) const REQUIRES(mutex_);
  // The heat of what is managed in the aligned chunk of heat that begins there.
  double heat_of_managed(std::uintptr_t begin) const REQUIRES(mutex_);
  TrackedRange chunk_at(std::uintptr_t begin) const REQUIRES(mutex_);
  // What moves as a whole at most.
  Bytes largest_chunk() const REQUIRES(mutex_);
  // The policy with a budget that the fast tier has room for, `places` being all.
  TierPolicy policy_for(std::span<const ChunkPlace> places) const REQUIRES(mutex_);
  // Asks the guard whether chunks may move for the better, and what is to be undone.
  void guard(TierStep& step, std::optional<std::uint64_t> work, Nanoseconds now) REQUIRES(mutex_);
  // As decide(), but while the guard has moves rest: what it undoes, and what the budget takes.
  std::vector<TierDecision> decide_now(const std::vector<ChunkPlace>& places) const
      REQUIRES(mutex_);
  // Does what was decided and adds what was refused; what comes in is no more than its place that
  // was left, and the decisions without it are dropped.
  Status carry_out(TierStep& step) REQUIRES(mutex_);
  // Moves what is to go out, or to come in, and adds what was refused.
  Status move(TierStep& step, bool in) REQUIRES(mutex_);
  // Fills the allowance for the time since the last step.
  void earn(Nanoseconds elapsed) REQUIRES(mutex_);
  void back_off(std::uintptr_t chunk) REQUIRES(mutex_);

  // How long a chunk that refused to move is let be.
  struct BackOff {
    unsigned length = 0;  // steps
    unsigned left = 0;
  };

  const Origin origin_;
  const PageTierOptions options_;
  Kernel& kernel_;
  const Clock& clock_;
  std::unique_ptr<HotnessSource> source_;  // none: see()
  std::unique_ptr<SlowMemory> slow_;
  mutable Mutex mutex_;
  Hotness hotness_ GUARDED_BY(mutex_);
  std::vector<Managed> ranges_ GUARDED_BY(mutex_);  // by address
  double allowance_ GUARDED_BY(mutex_) = 0;         // bytes
  std::unordered_map<std::uintptr_t, BackOff> backed_off_ GUARDED_BY(mutex_);
  std::optional<Nanoseconds> stepped_ GUARDED_BY(mutex_);
  WorkGuard guard_ GUARDED_BY(mutex_);
  bool resting_ GUARDED_BY(mutex_) = false;  // by the guard
  // Whether chunks that moved in the guard's span were in before it; while it rests those that are
  // to be so again.
  std::unordered_map<std::uintptr_t, bool> were_in_ GUARDED_BY(mutex_);
  std::deque<TierDecision> log_ GUARDED_BY(mutex_);
  Moved moved_ GUARDED_BY(mutex_);
};

}  // namespace headrace
