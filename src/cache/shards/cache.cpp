// SPDX-License-Identifier: Apache-2.0
// The public classes Cache, Block and Prefetch, and the shards. A shard is a CacheCore.
#include "headrace/cache.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "cache/core.h"
#include "cache/shards/shards.h"
#include "core/fail.h"
#include "core/waiting/patience.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// Stretches are short, so that hot ones spread over the shards. They are at least as long as the
// longest run of planned neighbours (prefetch.cpp), so that few runs are cut.
constexpr std::uint64_t kStretches = 64;  // in a shard's smallest budget
constexpr std::uint64_t kShortest = std::uint64_t{4} << 10;
constexpr std::uint64_t kLongest = std::uint64_t{1} << 20;

constexpr std::size_t kMostAutomatic = 64;
constexpr std::size_t kCpus = 2;        // for each shard
constexpr Bytes kLeastSlab = 2_MiB;     // of a shard: a huge page
constexpr Bytes kLeastBudget = 4_KiB;   // of a shard: a page
constexpr Bytes kGoodBudget = 256_MiB;  // of a shard, by default

Bytes smallest_budget(const CacheOptions& options) {
  return std::ranges::min_element(options.budgets, {}, [](const auto& one) { return one.second; })
      ->second;
}

CacheStats::Percentiles percentiles(const Histogram& histogram) {
  return {.count = histogram.count(),
          .p50 = histogram.quantile(0.5),
          .p90 = histogram.quantile(0.9),
          .p99 = histogram.quantile(0.99)};
}

// A shard's part of a budget.
Bytes share(Bytes budget, std::size_t shards, std::size_t number) {
  return Bytes{budget.value / shards + (number < budget.value % shards ? 1 : 0)};
}

Status check_chain(const CacheOptions& options) {
  if (options.chain.empty()) return {};
  if (options.budgets.size() != 1) {
    return fail(ErrorCode::invalid,
                "{} budgets above a chain; give one, and each of several a cache of its own",
                options.budgets.size());
  }
  return {};
}

Status check_shards(const CacheOptions& options) {
  const std::size_t shards = options.shards;
  if (shards == 0) return {};
  if (!std::has_single_bit(shards) || shards > CacheShards::kMost) {
    return fail(ErrorCode::invalid,
                "{} shards; give a power of two up to {}, or 0 to have it chosen", shards,
                CacheShards::kMost);
  }
  const Bytes smallest = smallest_budget(options);
  if (shards > 1 && smallest / shards < kLeastBudget) {
    return fail(ErrorCode::invalid,
                "{} shards of a budget of {} have less than {} each; give fewer shards", shards,
                to_string(smallest), to_string(kLeastBudget));
  }
  return {};
}

}  // namespace

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
    case CacheEvent::Kind::promoted: return "promoted";
    case CacheEvent::Kind::demoted: return "demoted";
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
      budget_or_slot_(other.budget_or_slot_),
      node_or_tenant_(other.node_or_tenant_),
      refusal_(std::exchange(other.refusal_, Refusal::none)),
      missing_(other.missing_),
      hit_(std::exchange(other.hit_, false)),
      writing_(std::exchange(other.writing_, Writing::no)) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}

Block Block::clone() const {
  Block copy;
  copy.cache_ = cache_;
  copy.extent_ = extent_;
  if (writing_ != Writing::no) {
    copy.refusal_ = Refusal::told;
    copy.refused_ = std::make_unique<Error>(
        fail(ErrorCode::invalid, "a clone of a Block for writing; access() the extent again")
            .error());
    return copy;
  }
  copy.bytes_ = bytes_;
  copy.hit_ = hit_;
  if (refused_ != nullptr) copy.refused_ = std::make_unique<Error>(*refused_);
  copy.refusal_ = refusal_;
  copy.node_or_tenant_ = node_or_tenant_;
  if (entry_ == nullptr) {
    copy.budget_or_slot_ = budget_or_slot_;
  } else {
    cache_->pin_again(*entry_);
    if (node_or_tenant_ != 0) cache_->pins().add(copy);
    copy.entry_ = entry_;
  }
  return copy;
}

std::optional<std::span<const std::byte>> Block::look() const {
  // A ready copy first: its object may be destroyed, and must not be read.
  if (entry_ != nullptr && entry_->has_bytes()) {
    return std::span<const std::byte>{entry_->data + (extent_.offset - entry_->offset),
                                      extent_.length.value};
  }
  if (!extent_.valid()) return std::nullopt;
  if (extent_.length.value == 0) return std::span<const std::byte>{};
  if (extent_.memory() == nullptr || is_writable()) return std::nullopt;
  return std::span<const std::byte>{extent_.memory(), extent_.length.value};
}

// The wait of wait() and wait_on_gpu().
inline Status Block::wait_for_end(Nanoseconds timeout) const {
  if (cache_ == nullptr) return fail(ErrorCode::invalid, "an empty Block; get one by access()");
  if (entry_ != nullptr && entry_->now() == BlockState::filling && !cache_->origin().here()) {
    // No thread of this process ends the copy.
    if (now()) return {};
    HEADRACE_TRY_STATUS(cache_->origin().check(kTheCache));
  } else if (entry_ != nullptr) {
    if (entry_->now() == BlockState::filling && cache_->fills().in_callback()) {
      return fail(ErrorCode::invalid, kInCallback, "wait()");
    }
    const BlockState state = cache_->fills().wait(*entry_, timeout, waited_);
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
  if (refusal_ == Refusal::foreign_plan) return Unexpected(cache_->why(*this));
  if (const auto bytes = now()) return *bytes;
  if (entry_ == nullptr) return Unexpected(cache_->why(*this));
  if (!entry_->is_whole()) return Unexpected(*entry_->fill->error);
  return fail(
      ErrorCode::unsupported,
      "the copy is in the memory of GPU node {}, which no CPU reaches; use device_address() "
      "or wait_on_gpu()",
      raw(cache_->node_of(*entry_)));
}

Result<std::span<std::byte>> Block::wait_to_write(Nanoseconds timeout) {
  if (refusal_ == Refusal::told) return Unexpected(*refused_);
  HEADRACE_TRY(const auto bytes, wait(timeout));
  if (bytes.empty()) return std::span<std::byte>{};
  if (writing_ == Writing::no) {
    return fail(ErrorCode::invalid, "the Block is for reading; access() the extent with `write`");
  }
  HEADRACE_TRY_STATUS(cache_->origin().check(kTheCache));
  writing_ = Writing::has;
  return std::span(const_cast<std::byte*>(bytes.data()), bytes.size());
}

// Then the source may be older than the cache.
inline bool Block::is_writable() const { return cache_ != nullptr && cache_->writable(); }

std::optional<std::uint64_t> Block::device_address() const {
  if (entry_ == nullptr || !entry_->is_whole_on_gpu() || !cache_->origin().here()) return {};
  return reinterpret_cast<std::uint64_t>(entry_->data + (extent_.offset - entry_->offset));
}

Result<std::uint64_t> Block::wait_on_gpu(Nanoseconds timeout) const {
  HEADRACE_TRY_STATUS(wait_for_end(timeout));
  if (const auto address = device_address()) return *address;
  if (refusal_ == Refusal::foreign_plan) return Unexpected(cache_->why(*this));
  HEADRACE_TRY_STATUS(cache_->origin().check(kTheCache));
  if (extent_.valid() && extent_.length.value == 0) {
    return fail(ErrorCode::invalid, "no bytes have no address; ask for some");
  }
  if (entry_ == nullptr) return Unexpected(cache_->why(*this));
  if (!entry_->is_whole()) return Unexpected(*entry_->fill->error);
  return fail(ErrorCode::unsupported, "the copy is on node {}, which CPUs reach; use wait()",
              raw(cache_->node_of(*entry_)));
}

void Block::on_ready(std::function<void()> then) const {
  if (entry_ == nullptr) return then();
  cache_->fills().on_ready(*entry_, std::move(then));
}

BlockState Block::state() const {
  if (entry_ != nullptr) return entry_->now();
  const bool empty = cache_ != nullptr && extent_.valid() && extent_.length.value == 0;
  return empty ? BlockState::ready : BlockState::absent;
}

std::optional<NodeId> Block::node() const {
  if (entry_ != nullptr && entry_->is_whole()) return cache_->node_of(*entry_);
  if (!extent_.valid() || extent_.length.value == 0) return std::nullopt;
  if (extent_.memory() == nullptr || is_writable()) return std::nullopt;
  return extent_.object->node();
}

std::size_t CacheShards::automatic(const CacheOptions& options, std::size_t cpus) {
  if (options.observer) return 1;
  const auto budgets = static_cast<std::size_t>(smallest_budget(options) / kGoodBudget);
  return std::bit_floor(
      std::max(std::min({cpus / kCpus, budgets, kMostAutomatic}), std::size_t{1}));
}

Result<std::unique_ptr<CacheShards>> CacheShards::create(Mover& mover, CacheOptions options) {
  HEADRACE_TRY_STATUS(check_chain(options));
  if (options.before_write_back && !options.writable) {
    return fail(ErrorCode::invalid,
                "before_write_back in a read-only cache; create it with `writable`");
  }
  options.budgets.insert(options.budgets.end(), options.chain.begin(), options.chain.end());
  HEADRACE_TRY_STATUS(CacheCore::check(mover.machine(), options));
  HEADRACE_TRY_STATUS(check_shards(options));
  HEADRACE_TRY_STATUS(TenantShares::check(options.tenants));
  const std::size_t shards = options.shards != 0
                                 ? options.shards
                                 : automatic(options, std::thread::hardware_concurrency());
  std::unique_ptr<CacheShards> made(new CacheShards(mover, options, shards));
  if (!options.reserve) return made;
  // Checked as a whole: checks per slab would succeed until the machine has no memory left.
  std::map<NodeId, Bytes> all;
  for (const auto& [id, budget] : options.budgets) {
    if (mover.machine().find(id)->byte_addressable()) all[id] = budget;
  }
  if (!options.allocate) HEADRACE_TRY_STATUS(check_free(all));
  for (const auto& core : made->cores_) HEADRACE_TRY_STATUS(core->reserve());
  return made;
}

CacheShards::CacheShards(Mover& mover, const CacheOptions& options, std::size_t shards)
    : mover_(mover),
      reserve_checked_(options.reserve && !options.allocate),
      writable_(options.writable),
      tenants_(options.tenants),
      accounts_(options),
      syncs_(mover.waiting()),
      stretches_(std::bit_floor(std::clamp(smallest_budget(options).value / shards / kStretches,
                                           kShortest, kLongest)),
                 shards) {
  for (std::size_t i = 0; i < shards; ++i) {
    CacheOptions own = options;
    for (auto& [id, budget] : own.budgets) {
      budget = share(budget, shards, i);
      largest_ = std::max(largest_.load(), budget.value);
    }
    own.slab = std::max(options.slab / shards, std::min(options.slab, kLeastSlab));
    cores_.push_back(
        std::make_unique<CacheCore>(mover, std::move(own), accounts_, this, i, shards));
  }
  if (!options.tenants.empty() || options.curve) {
    counts_ = std::make_unique<TenantCounts>(options.tenants);
    longest_ = kCounted;
  }
  if (options.curve) reuse_ = std::make_unique<ReuseSample>();
  ++mover_.caches_;
}

// A callback of a copy that ends may access any shard, so all come to rest before one is freed. A
// round without a start leaves all at rest: no copy is left whose callback could start another.
CacheShards::~CacheShards() {
  const auto started = [this] {
    std::uint64_t all = 0;
    for (const auto& core : cores_) all += core->started();
    return all;
  };
  std::uint64_t before = 0;
  do {
    before = started();
    for (const auto& core : cores_) core->come_to_rest();
  } while (started() != before);
  cores_.clear();
  --mover_.caches_;
}

// The shares of all shards add up to the budget.
void CacheShards::note(const Extent& extent) {
  if (extent.valid() && stretches_.goes_on(extent)) note_length(extent.length);
}

void CacheShards::note_length(Bytes length) {
  if (length.value > largest_.load()) return;  // it is refused
  std::uint64_t seen = longest_.load();
  while (seen < length.value && !longest_.compare_exchange_weak(seen, length.value)) {
  }
}

bool CacheShards::invalidate(const Extent& extent) {
  bool all = true;
  for (const auto& core : cores_) all = core->invalidate(extent) && all;
  return all;
}

Status CacheShards::discard(const Extent& extent, Nanoseconds timeout) {
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  for (const auto& core : cores_) HEADRACE_TRY_STATUS(core->discard(extent, patience));
  (void)invalidate(extent);
  return {};
}

Status CacheShards::write_back(const WriteBackOptions& options) {
  Patience patience(mover_.clock(), mover_.waiting(), options.timeout);
  return write_back(options, patience);
}

// If the time is over, the other shards start their write-backs too.
Status CacheShards::write_back(const WriteBackOptions& options, Patience& patience) {
  HEADRACE_TRY_STATUS(cores_[0]->origin().check(kTheCache));
  Status first;
  for (const auto& core : cores_) {
    Status one = core->write_back(options, patience);
    if (!one && first) first = std::move(one);
  }
  return first;
}

Status CacheShards::sync(const WriteBackOptions& options) {
  HEADRACE_TRY_STATUS(cores_[0]->origin().check(kTheCache));
  Patience patience(mover_.clock(), mover_.waiting(), options.timeout);
  HEADRACE_TRY_STATUS(write_back(options, patience));
  const auto take = [this](const Syncs::Add& add) {
    for (const auto& core : cores_) {
      core->use_files([&](WrittenFiles& files) { files.take_unsynced(add); });
    }
  };
  return syncs_.sync(take, options.extent ? options.extent->object : nullptr, patience,
                     options.stop);
}

Status CacheShards::forget(const Object& object, Nanoseconds timeout) {
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  if (writable_ && here()) HEADRACE_TRY_STATUS(write_back({.extent = whole(object)}, patience));
  // No access finds the copies any more; then it waits for all ends together.
  if (!invalidate(whole(object))) {
    return fail(ErrorCode::invalid,
                "a Block holds a part of the object for writing, or has changed it meanwhile; "
                "release it and forget() the object again");
  }
  if (writable_ && here()) {
    if (mover_.in_callback()) return fail(ErrorCode::invalid, kInCallback, "forget()");
    for (const auto& core : cores_) {  // first, so that no sync takes it after Syncs::forget()
      core->use_files([&](WrittenFiles& files) { files.forget(object.id()); });
    }
    HEADRACE_TRY_STATUS(syncs_.forget(object.id(), patience));
  }
  for (const auto& core : cores_) HEADRACE_TRY_STATUS(core->forget(object, patience));
  if (here()) accounts_.owners.set(object.id(), {});
  return {};
}

std::vector<ObjectId> CacheShards::reading() const {
  std::vector<ObjectId> objects;
  for (const auto& core : cores_) {
    const auto more = core->reading();
    objects.insert(objects.end(), more.begin(), more.end());
  }
  if (here()) {
    const auto syncing = syncs_.pending();
    objects.insert(objects.end(), syncing.begin(), syncing.end());
  }
  std::ranges::sort(objects);
  const auto repeated = std::ranges::unique(objects);
  objects.erase(repeated.begin(), repeated.end());
  return objects;
}

void CacheShards::flush() {
  for (const auto& core : cores_) core->flush();
}

void CacheShards::clear() {
  for (const auto& core : cores_) core->clear();
}

Status CacheShards::resize(NodeId node, Bytes budget) {
  HEADRACE_TRY_STATUS(cores_[0]->origin().check(kTheCache));
  const MutexLock lock(resizing_);
  if (reserve_checked_) {
    Bytes more;
    for (std::size_t i = 0; i < cores_.size(); ++i) {
      more += cores_[i]->more_for(node, share(budget, cores_.size(), i));
    }
    if (more > 0_B) HEADRACE_TRY_STATUS(check_free({{node, more}}));
  }
  largest_ = std::max(largest_.load(), share(budget, cores_.size(), 0).value);
  Status first;
  for (std::size_t i = 0; i < cores_.size(); ++i) {
    Status resized = cores_[i]->resize(node, share(budget, cores_.size(), i));
    if (!resized && first) first = std::move(resized);
  }
  accounts_.pins.set_budget(node, budget);
  return first;
}

CacheStats CacheShards::stats() const {
  Histogram wait_time;
  Histogram copy_latency;
  CacheStats all;
  for (const auto& core : cores_) {
    const CacheStats one = core->stats(wait_time, copy_latency);
    all.hits += one.hits;
    all.inflight_hits += one.inflight_hits;
    all.misses += one.misses;
    all.prefetched += one.prefetched;
    all.first_uses += one.first_uses;
    all.late += one.late;
    all.wasted_bytes += one.wasted_bytes;
    all.evictions += one.evictions;
    all.promotions += one.promotions;
    all.demotions += one.demotions;
    all.invalidations += one.invalidations;
    all.failures += one.failures;
    all.refusals += one.refusals;
    all.written_back += one.written_back;
    all.write_failures += one.write_failures;
    all.slab_failures += one.slab_failures;
    all.bytes_dirty += one.bytes_dirty;
    all.bytes_used += one.bytes_used;
    all.bytes_pinned += one.bytes_pinned;
    all.blocks += one.blocks;
    all.tenants.resize(one.tenants.size());
    for (std::size_t i = 0; i < one.tenants.size(); ++i) {
      all.tenants[i].evictions += one.tenants[i].evictions;
      all.tenants[i].bytes_used += one.tenants[i].bytes_used;
      all.tenants[i].bytes_pinned += one.tenants[i].bytes_pinned;
    }
  }
  if (!all.tenants.empty()) counts_->add_to(all.tenants);
  all.wait_time = percentiles(wait_time);
  all.copy_latency = percentiles(copy_latency);
  return all;
}

Cache::Cache(std::unique_ptr<CacheShards> shards)
    : shards_(std::move(shards)), only_(shards_->only()) {}

Cache::~Cache() {
  if (!shards_->here()) abandon(std::move(shards_));
}

Result<std::unique_ptr<Cache>> Cache::create(Mover& mover, CacheOptions options) {
  HEADRACE_TRY(auto shards, CacheShards::create(mover, std::move(options)));
  return std::unique_ptr<Cache>(new Cache(std::move(shards)));
}

bool Cache::invalidate(Extent extent) { return shards_->invalidate(extent); }

Status Cache::discard(Extent extent, Nanoseconds timeout) {
  return shards_->discard(extent, timeout);
}

Status Cache::write_back(const WriteBackOptions& options) { return shards_->write_back(options); }

Status Cache::sync(const WriteBackOptions& options) { return shards_->sync(options); }

Status Cache::forget(const Object& object, Nanoseconds timeout) {
  return shards_->forget(object, timeout);
}

std::vector<ObjectId> Cache::reading() const { return shards_->reading(); }

Status Cache::read(const Extent& from, std::span<std::byte> to, const ReadOptions& options) {
  return shards_->read(from, to, options);
}

void Cache::flush() { shards_->flush(); }

void Cache::clear() { shards_->clear(); }

Status Cache::resize(NodeId node, Bytes budget) { return shards_->resize(node, budget); }

CacheStats Cache::stats() const { return shards_->stats(); }

Result<std::vector<CacheCurvePoint>> Cache::miss_ratio_curve() const {
  return shards_->miss_ratio_curve();
}

Result<TenantId> Cache::tenant(std::string_view name) const { return shards_->tenant(name); }

Status Cache::set_tenant(const Object& object, TenantId tenant) {
  return shards_->set_tenant(object, tenant);
}

}  // namespace headrace
