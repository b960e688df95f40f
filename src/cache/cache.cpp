// SPDX-License-Identifier: Apache-2.0
// The public faces: Cache, Block and Prefetch. What they do is done by CacheCore; a hit and its end
// are in hits.cpp.
#include "headrace/cache.h"

#include <tuple>
#include <utility>

#include "cache/core.h"
#include "core/fail.h"

namespace headrace {

std::string_view to_string(BlockState state) {
  switch (state) {
    case BlockState::absent: return "absent";
    case BlockState::filling: return "filling";
    case BlockState::ready: return "ready";
    case BlockState::failed: return "failed";
    case BlockState::evicting: return "evicting";
  }
  return "unknown";
}

std::string_view to_string(CacheEvent::Kind kind) {
  switch (kind) {
    case CacheEvent::Kind::fill_started: return "fill_started";
    case CacheEvent::Kind::ready: return "ready";
    case CacheEvent::Kind::failed: return "failed";
    case CacheEvent::Kind::hit: return "hit";
    case CacheEvent::Kind::inflight_hit: return "inflight_hit";
    case CacheEvent::Kind::miss: return "miss";
    case CacheEvent::Kind::evicted: return "evicted";
    case CacheEvent::Kind::invalidated: return "invalidated";
  }
  return "unknown";
}

Block::Block(Block&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      entry_(std::exchange(other.entry_, nullptr)),
      slot_(std::exchange(other.slot_, nullptr)),
      bytes_(std::exchange(other.bytes_, nullptr)),
      extent_(std::exchange(other.extent_, {})),
      refused_(std::move(other.refused_)),
      waited_(std::exchange(other.waited_, Nanoseconds{0})),
      refused_budget_(other.refused_budget_),
      refused_by_(other.refused_by_),
      refusal_(std::exchange(other.refusal_, Refusal::none)),
      missing_(other.missing_),
      hit_(std::exchange(other.hit_, false)) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    std::ignore = Block(std::move(*this));
    cache_ = std::exchange(other.cache_, nullptr);
    entry_ = std::exchange(other.entry_, nullptr);
    slot_ = std::exchange(other.slot_, nullptr);
    bytes_ = std::exchange(other.bytes_, nullptr);
    extent_ = std::exchange(other.extent_, {});
    refused_ = std::move(other.refused_);
    waited_ = std::exchange(other.waited_, Nanoseconds{0});
    refused_budget_ = other.refused_budget_;
    refused_by_ = other.refused_by_;
    refusal_ = std::exchange(other.refusal_, Refusal::none);
    missing_ = other.missing_;
    hit_ = std::exchange(other.hit_, false);
  }
  return *this;
}

Block Block::clone() const {
  Block copy;
  copy.cache_ = cache_;
  copy.extent_ = extent_;
  copy.bytes_ = bytes_;
  copy.hit_ = hit_;
  if (refused_ != nullptr) copy.refused_ = std::make_unique<Error>(*refused_);
  copy.refusal_ = refusal_;
  copy.refused_by_ = refused_by_;
  copy.refused_budget_ = refused_budget_;
  if (entry_ != nullptr) {
    cache_->pin_again(*entry_);
    copy.entry_ = entry_;
  }
  return copy;
}

std::optional<std::span<const std::byte>> Block::look() const {
  // A ready copy first: its object may be gone, and must not be looked at.
  if (entry_ != nullptr && entry_->has_bytes()) {
    return std::span<const std::byte>{entry_->data + (extent_.offset - entry_->offset),
                                      extent_.length.value};
  }
  if (!extent_.valid()) return std::nullopt;
  if (extent_.length.value == 0) return std::span<const std::byte>{};
  if (extent_.memory() == nullptr) return std::nullopt;
  return std::span<const std::byte>{extent_.memory(), extent_.length.value};
}

// What wait() waits for.
inline Status Block::wait_for_end(Nanoseconds timeout) const {
  if (cache_ == nullptr) return fail(ErrorCode::invalid, "an empty Block; get one by access()");
  if (entry_ != nullptr && entry_->now() == BlockState::filling && !cache_->origin().here()) {
    // Whoever filled it is not in this process.
    if (now()) return {};
    HEADRACE_TRY_STATUS(cache_->origin().check(kTheCache));
  } else if (entry_ != nullptr) {
    if (entry_->now() == BlockState::filling && cache_->in_callback()) {
      return fail(ErrorCode::invalid, kInCallback, "wait()");
    }
    const BlockState state = cache_->wait(*entry_, timeout, waited_);
    if (state == BlockState::filling) {
      return fail(ErrorCode::timed_out,
                  "the copy is still in flight; wait again, or read now() meanwhile");
    }
  }
  return {};
}

Result<std::span<const std::byte>> Block::wait(Nanoseconds timeout) const {
  if (bytes_ != nullptr) return *now();
  HEADRACE_TRY_STATUS(wait_for_end(timeout));
  if (const auto bytes = now()) return *bytes;
  if (entry_ == nullptr) return Unexpected(cache_->why(*this));
  if (!entry_->is_whole()) return Unexpected(*entry_->fill->error);
  return fail(
      ErrorCode::unsupported,
      "the copy is in the memory of GPU node {}, which no CPU reaches; use device_address() "
      "or wait_on_gpu()",
      raw(*cache_->node_of(*entry_)));
}

std::optional<std::uint64_t> Block::device_address() const {
  if (entry_ == nullptr || !entry_->is_whole_on_gpu() || !cache_->origin().here()) return {};
  return reinterpret_cast<std::uint64_t>(entry_->data + (extent_.offset - entry_->offset));
}

Result<std::uint64_t> Block::wait_on_gpu(Nanoseconds timeout) const {
  HEADRACE_TRY_STATUS(wait_for_end(timeout));
  if (const auto address = device_address()) return *address;
  HEADRACE_TRY_STATUS(cache_->origin().check(kTheCache));
  if (extent_.valid() && extent_.length.value == 0) {
    return fail(ErrorCode::invalid, "no bytes have no address; ask for some");
  }
  if (entry_ == nullptr) return Unexpected(cache_->why(*this));
  if (!entry_->is_whole()) return Unexpected(*entry_->fill->error);
  return fail(ErrorCode::unsupported, "the copy is on node {}, which CPUs reach; use wait()",
              raw(*cache_->node_of(*entry_)));
}

void Block::on_ready(std::function<void()> then) const {
  if (entry_ == nullptr) return then();
  cache_->on_ready(*entry_, std::move(then));
}

BlockState Block::state() const {
  if (entry_ != nullptr) return entry_->now();
  const bool empty = cache_ != nullptr && extent_.valid() && extent_.length.value == 0;
  return empty ? BlockState::ready : BlockState::absent;
}

std::optional<NodeId> Block::node() const {
  if (entry_ != nullptr && entry_->is_whole()) return cache_->node_of(*entry_);
  if (!extent_.valid() || extent_.length.value == 0) return std::nullopt;
  if (extent_.memory() == nullptr) return std::nullopt;
  return extent_.object->node();
}

Prefetch::Prefetch(Prefetch&&) noexcept = default;

Prefetch& Prefetch::operator=(Prefetch&& other) noexcept {
  if (this != &other) {
    cancel();
    plan_ = std::move(other.plan_);
  }
  return *this;
}

Prefetch::~Prefetch() { cancel(); }

void Prefetch::cancel() {
  if (plan_ == nullptr) return;
  if (CacheCore* core = plan_->core) core->cancel(plan_);
}

Prefetch::Progress Prefetch::progress() const {
  if (plan_ == nullptr) return {};
  CacheCore* const core = plan_->core;
  return core == nullptr ? plan_->progress : core->progress(*plan_);
}

Cache::Cache(std::unique_ptr<CacheCore> core) : core_(std::move(core)) {}

Cache::~Cache() {
  if (!core_->origin().here()) abandon(std::move(core_));
}

Result<std::unique_ptr<Cache>> Cache::create(Mover& mover, CacheOptions options) {
  HEADRACE_TRY_STATUS(CacheCore::check(mover.machine(), options));
  const bool reserve = options.reserve;
  auto core = std::make_unique<CacheCore>(mover, std::move(options));
  if (reserve) HEADRACE_TRY_STATUS(core->reserve());
  return std::unique_ptr<Cache>(new Cache(std::move(core)));
}

Prefetch Cache::prefetch(std::span<const Extent> extents, const PrefetchOptions& options) {
  return core_->prefetch(extents, options);
}

void Cache::invalidate(Extent extent) { core_->invalidate(extent); }

Status Cache::forget(const Object& object, Nanoseconds timeout) {
  return core_->forget(object, timeout);
}

std::vector<ObjectId> Cache::reading() const { return core_->reading(); }

void Cache::flush() { core_->flush(); }

void Cache::clear() { core_->clear(); }

Status Cache::resize(NodeId node, Bytes budget) { return core_->resize(node, budget); }

CacheStats Cache::stats() const { return core_->stats(); }

}  // namespace headrace
