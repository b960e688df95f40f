// SPDX-License-Identifier: Apache-2.0
// The handle of a plan, and the explanations of a cache.
#include <utility>

#include "cache/shards/shards.h"
#include "headrace/cache/explain.h"

namespace headrace {

Prefetch::Prefetch(Prefetch&& other) noexcept
    : plans_(std::move(other.plans_)), cache_(std::exchange(other.cache_, nullptr)) {}

Prefetch& Prefetch::operator=(Prefetch&& other) noexcept {
  if (this != &other) {
    cancel();
    plans_ = std::move(other.plans_);
    cache_ = std::exchange(other.cache_, nullptr);
  }
  return *this;
}

Prefetch::~Prefetch() { cancel(); }

void Prefetch::cancel() {
  for (const auto& plan : plans_) {
    CacheCore* const core = plan == nullptr ? nullptr : plan->core.load();
    if (core != nullptr) core->pump().cancel(plan);
  }
}

Prefetch::Progress Prefetch::progress() const {
  Progress all;
  for (const auto& plan : plans_) {
    if (plan == nullptr) continue;
    CacheCore* const core = plan->core;
    const Progress part = core == nullptr ? plan->progress : core->pump().progress(*plan);
    all.planned += part.planned;
    all.started += part.started;
    all.used += part.used;
    all.invalid += part.invalid;
    all.cancelled = all.cancelled || part.cancelled;
  }
  return all;
}

Prefetch Cache::prefetch(std::span<const Extent> extents, const PrefetchOptions& options) {
  return shards_->prefetch(extents, options);
}

Prefetch Cache::prefetch(const Strided& extents, const PrefetchOptions& options) {
  return shards_->prefetch(extents, options);
}

Result<CacheExplanation> Cache::explain(const Extent& extent,
                                        std::optional<NodeId> initiator) const {
  return headrace::explain(*shards_, extent, initiator);
}

}  // namespace headrace
