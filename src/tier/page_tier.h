// The inside of PageTier, which tests open over a kernel of their own. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/tier/page_tier.h"
#include "tier/kernel.h"
#include "tier/source.h"

namespace headrace {

class PageTier::Inside {
 public:
  // As PageTier::open(); `kernel` must outlive it.
  static Result<std::unique_ptr<Inside>> open(const PageTierOptions& options, Kernel& kernel);
  // False in a child, which leaves it as it is.
  bool here() const { return origin_.here(); }

  Status add(std::span<const std::byte> memory);
  Status remove(std::span<const std::byte> memory);
  Result<TierStep> step();
  std::vector<TierDecision> decisions() const;

 private:
  Inside(const PageTierOptions& options, Kernel& kernel, OwnDescriptor pagemap);

  // They may throw std::bad_alloc.
  static Result<std::unique_ptr<Inside>> open_or_throw(const PageTierOptions& options,
                                                       Kernel& kernel);
  Status add_or_throw(std::span<const std::byte> memory);
  Status remove_or_throw(std::span<const std::byte> memory);
  Result<TierStep> step_or_throw();

  // Whether a page goes out and comes in when it is asked to.
  Status try_out();
  Status heat_up() REQUIRES(mutex_);
  Result<std::vector<ChunkPlace>> places() const REQUIRES(mutex_);
  Result<ChunkPlace> place_of(std::uintptr_t begin, std::uintptr_t end) const;
  // Hands the entries of pagemap of [begin, end) to `each`, with their addresses.
  Status read_pagemap(std::uintptr_t begin, std::uintptr_t end,
                      const std::function<void(std::uintptr_t, std::uint64_t)>& each) const;
  Status bring_in(std::uintptr_t begin, std::uintptr_t end);
  std::uintptr_t end_of_chunk(std::uintptr_t begin) const REQUIRES(mutex_);
  // Does what was decided, and adds what was refused.
  Status carry_out(TierStep& step) REQUIRES(mutex_);
  // The bytes that did not move.
  Result<Bytes> carry_out(const TierDecision& decision) REQUIRES(mutex_);
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
  OwnDescriptor pagemap_;
  std::unique_ptr<HotnessSource> source_;
  mutable Mutex mutex_;
  Hotness hotness_ GUARDED_BY(mutex_);
  std::vector<TrackedRange> ranges_ GUARDED_BY(mutex_);  // by address
  double allowance_ GUARDED_BY(mutex_) = 0;              // bytes
  std::unordered_map<std::uintptr_t, BackOff> backed_off_ GUARDED_BY(mutex_);
  std::optional<Nanoseconds> stepped_ GUARDED_BY(mutex_);
  std::deque<TierDecision> log_ GUARDED_BY(mutex_);
};

}  // namespace headrace
