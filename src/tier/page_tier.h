// The inside of PageTier, which tests open over a kernel of their own. Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
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

  // Whether a page goes out when it is asked to.
  Status try_out();
  Status heat_up() REQUIRES(mutex_);
  Result<std::vector<ChunkPlace>> places() const REQUIRES(mutex_);
  Result<ChunkPlace> place_of(std::uintptr_t begin, std::uintptr_t end) const;
  std::uintptr_t end_of_chunk(std::uintptr_t begin) const REQUIRES(mutex_);
  // The bytes that did not move.
  Result<Bytes> carry_out(const TierDecision& decision) REQUIRES(mutex_);

  const Origin origin_;
  const PageTierOptions options_;
  Kernel& kernel_;
  const Clock& clock_;
  OwnDescriptor pagemap_;
  std::unique_ptr<HotnessSource> source_;
  mutable Mutex mutex_;
  Hotness hotness_ GUARDED_BY(mutex_);
  std::vector<TrackedRange> ranges_ GUARDED_BY(mutex_);  // by address
  Bytes allowance_ GUARDED_BY(mutex_);
  std::optional<Nanoseconds> stepped_ GUARDED_BY(mutex_);
  std::deque<TierDecision> log_ GUARDED_BY(mutex_);
};

}  // namespace headrace
