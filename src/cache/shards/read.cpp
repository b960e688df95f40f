// SPDX-License-Identifier: Apache-2.0
// Work over several shards: accesses to extents that continue into another stretch, reads, which
// access the blocks of a grid, and plans.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "cache/shards/shards.h"
#include "core/fail.h"

namespace headrace {

void CacheShards::count(TenantId tenant, const Block& block) {
  if (counts_ == nullptr || !here()) return;  // in a child of fork() the sample's lock may be held
  counts_->count(accounts_.owners.of(block.extent().object, tenant), block.hit());
  if (reuse_ == nullptr) return;
  try {
    if (block.extent().valid() && block.extent().length > 0_B)
      return reuse_->access(block.extent());
  } catch (const std::bad_alloc&) {
  }
  // Pairs with nothing: only the sum counts.
  uncurved_.fetch_add(1, std::memory_order_relaxed);
}

Result<TenantId> CacheShards::tenant(std::string_view name) const {
  return counts_ == nullptr ? TenantCounts::no_such(name) : counts_->find(name);
}

Status CacheShards::set_tenant(const Object& object, TenantId tenant) {
  HEADRACE_TRY_STATUS(cores_[0]->origin().check(kTheCache));
  if (number_of(tenant) > tenants_.size()) return Unexpected(foreign_tenant());
  try {
    accounts_.owners.set(object.id(), tenant);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return {};
}

Result<std::vector<CacheCurvePoint>> CacheShards::miss_ratio_curve() const {
  HEADRACE_TRY_STATUS(cores_[0]->origin().check(kTheCache));
  const std::uint64_t uncurved = uncurved_.load();  // before the sum, which includes them
  if (reuse_ != nullptr) return reuse_->curve(counts_->sum() - uncurved);
  return fail(ErrorCode::invalid, "the cache samples no accesses; create it with `curve`");
}

// An access in a cache with a tenant that has a bound on its pins.
// `in_one`: one shard has all that it needs.
Block CacheShards::access_charged(const Extent& extent, const AccessOptions& options, bool in_one) {
  TenantPins& pins = accounts_.pins;
  const TenantId tenant =
      here() ? accounts_.owners.of(extent.object, options.tenant) : options.tenant;
  CacheCore& own = in_one ? of(extent) : of(to_fetch(extent));
  // Accesses that pin nothing, or that the shard refuses in any case, reserve nothing.
  const bool bound = pins.bounds(tenant) && here() && extent.valid() && extent.length > 0_B &&
                     !own.is_foreign(options);
  Block block;
  if (bound && !pins.reserve(tenant, extent.length)) {
    own.refuse(extent, block, pins.full(tenant, extent.length));
    own.use(range_of(extent), options);  // its plan goes on
    use_elsewhere(own, extent, options);
    return block;
  }
  if (in_one) {
    own.access({&extent, 1}, {&block, 1}, options, nullptr);
  } else {
    Started all;
    access_across(extent, block, options, all);
  }
  if (bound) pins.charge(block, tenant);
  return block;
}

// An access in a cache with blocks that continue into another stretch. Its block is made in the
// shard where the chunks begin, so that accesses to a chunk by any of its stretches share one.
void CacheShards::access_across(const Extent& extent, Block& block, const AccessOptions& options,
                                Started& all) {
  const Extent fetched = to_fetch(extent);
  CacheCore& own = of(fetched);
  if (extent.valid() && may_change(extent) && extent.length.value > 0 &&
      stretches_.goes_on(extent)) {
    return own.refuse(
        extent, block,
        fail(ErrorCode::invalid,
             "the {} at offset {} cross a multiple of {}, where the shards of a writable cache "
             "meet; access smaller extents, or create the cache with one shard",
             to_string(extent.length), extent.offset, to_string(Bytes{stretches_.bytes()}))
            .error());
  }
  if (!here() || !extent.valid() || extent.length.value == 0 || own.is_foreign(options)) {
    return own.access({&extent, 1}, {&block, 1}, options, &all);
  }
  note(fetched);
  if (!own.may_cover(range_of(extent)) && find_before(extent, options, block)) {
    own.use(range_of(extent), options);
  } else {
    own.access({&extent, 1}, {&block, 1}, options, &all);
  }
  use_elsewhere(own, extent, options);
}

// Plans of the other stretches: their items may lie in this extent.
void CacheShards::use_elsewhere(const CacheCore& own, const Extent& extent,
                                const AccessOptions& options) {
  if (!stretches_.goes_on(extent) && &of(extent) == &own) return;
  const Range range = range_of(extent);
  any_shard(range.object, stretches_.number(range.offset), stretches_.number(range.end() - 1),
            [&](CacheCore& core) {
              if (&core != &own) core.use(range, options);
              return false;
            });
}

// Looks into the shards of earlier stretches, where a block that covers the extent may begin.
bool CacheShards::find_before(const Extent& extent, const AccessOptions& options,
                              Block& block) const {
  const Range range = range_of(extent);
  const std::uint64_t longest = longest_.load();
  const std::uint64_t first = stretches_.number(range.offset - std::min(range.offset, longest));
  return any_shard(range.object, first, stretches_.number(range.offset), [&](CacheCore& core) {
    return core.may_cover(range) && core.find_there(extent, options, block);
  });
}

namespace {

// Blocks in flight for one read: enough to keep an SSD's queue busy, and few pins.
constexpr std::size_t kAhead = 16;
// The least block: a small read fetches little more than it needs.
constexpr std::uint64_t kCell = 64 << 10;
// How long until AccessOptions::stop is asked again.
constexpr Nanoseconds kTurn = std::chrono::milliseconds{50};

// The bytes of the chunks that are fetched as a whole, in blocks up to `largest`. Requires: an
// object.
std::uint64_t unit_of(const Strided& extents, std::uint64_t largest) {
  const std::uint64_t chunk = chunk_of(extents.object);
  return chunk > largest ? 1 : chunk;
}

// The bytes of a cell: `least`, or as many whole chunks, at least one.
std::uint64_t cell_of(const Object& object, std::uint64_t least) {
  const std::uint64_t chunk = chunk_of(&object);
  return std::max<std::uint64_t>(least / chunk, 1) * chunk;
}

// The blocks of a range of an object, in order: the largest aligned ones of 2^n cells that fit into
// the range, whose ends are rounded to cells.
class Grid {
 public:
  Grid(const Extent& range, const ReadOptions& options)
      : object_(range.object),
        cell_(cell_of(*range.object, std::min(kCell, std::bit_floor(options.block.value)))),
        most_(std::bit_floor(std::max<std::uint64_t>(options.block.value / cell_, 1))),
        next_(range.offset / cell_),
        end_((range.end() - 1) / cell_ + 1) {}

  std::uint64_t largest() const { return most_ * cell_; }  // bytes of a block
  bool done() const { return next_ >= end_; }
  // Requires: not done().
  Extent next() {
    std::uint64_t cells = next_ == 0 ? most_ : std::min(most_, next_ & -next_);
    while (cells > end_ - next_) cells /= 2;
    const std::uint64_t begin = std::exchange(next_, next_ + cells) * cell_;
    const std::uint64_t left = object_->size().value - begin;
    return {object_, begin, Bytes{cells > left / cell_ ? left : cells * cell_}};
  }

 private:
  const Object* const object_;
  const std::uint64_t cell_;  // bytes
  const std::uint64_t most_;  // cells of a block
  std::uint64_t next_;        // a cell
  const std::uint64_t end_;
};

// The bytes of `range` that lie in `block`.
Extent part_of(const Extent& range, const Extent& block) {
  const std::uint64_t begin = std::max(block.offset, range.offset);
  return {range.object, begin, Bytes{std::min(block.end(), range.end()) - begin}};
}

NodeId home_of(const Machine& machine) {
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable()) return node.id;
  }
  return NodeId{0};
}

// Calls wait(most) in short turns until it is no time-out, the time is over, or the caller stops.
template <class Wait>
auto wait_in_turns(const ReadOptions& options, const Wait& wait) -> decltype(wait(Nanoseconds{})) {
  Nanoseconds left = options.timeout;
  for (;;) {
    const Nanoseconds most = std::min(left, kTurn);
    auto found = wait(most);
    left -= most;
    if (found || found.error().code != ErrorCode::timed_out || left <= Nanoseconds{0}) return found;
    const auto* const stop = options.access.stop;
    if (stop != nullptr && (*stop)()) return fail(ErrorCode::cancelled, "the read was stopped");
  }
}

// Without a copy in the cache.
Status read_source(Mover& mover, const Extent& from, std::span<std::byte> to,
                   const ReadOptions& options, Priority priority) {
  if (const std::byte* bytes = from.memory()) {
    std::memcpy(to.data(), bytes, to.size());
    return {};
  }
  const MemoryRange range(to, home_of(mover.machine()));
  const Transfer transfer = mover.copy(whole(range), from, {.priority = priority});
  auto moved = wait_in_turns(options, [&](Nanoseconds most) { return transfer.wait(most); });
  if (moved) return {};
  // Nothing writes to the caller's memory after the return.
  transfer.cancel();
  while (!transfer.done()) (void)transfer.wait(options.timeout);
  return Unexpected(std::move(moved).error());
}

}  // namespace

Extent CacheShards::to_fetch(const Extent& extent) const {
  const Extent chunks = whole_chunks(extent);
  return chunks.length.value > largest_.load() ? extent : chunks;
}

Status CacheShards::read(const Extent& from, std::span<std::byte> to, const ReadOptions& options) {
  if (!from.valid()) return fail(ErrorCode::invalid, "the extent is outside its object");
  if (to.size() != from.length.value) {
    return fail(ErrorCode::invalid, "{} bytes for an extent of {}", to.size(), from.length.value);
  }
  if (options.access.write) {
    return fail(ErrorCode::invalid, "read() with `write`; use access() to write");
  }
  if (options.block == Bytes{0}) return fail(ErrorCode::invalid, "blocks of 0 bytes");
  if (to.empty()) return {};
  const TenantId tenant =
      here() ? accounts_.owners.of(from.object, options.access.tenant) : options.access.tenant;
  const Priority priority = priority_for(tenants_, number_of(tenant), options.access.priority);
  Grid grid(from, options);
  std::array<Extent, kAhead> extents;
  std::array<Block, kAhead> blocks;  // a ring
  const std::uint64_t may_hold = accounts_.pins.most(tenant) / grid.largest();
  const std::size_t ahead = std::clamp<std::uint64_t>(may_hold, 1, kAhead);
  std::size_t first = 0;
  for (; first < ahead && !grid.done(); ++first) extents[first] = grid.next();
  access(std::span(extents).first(first), std::span(blocks).first(first), options.access);
  for (std::size_t i = 0; first > 0; i = (i + 1) % first) {
    Block& block = blocks[i];
    const Extent part = part_of(from, block.extent());
    const auto into = to.subspan(part.offset - from.offset, part.length.value);
    const auto bytes = wait_in_turns(options, [&](Nanoseconds most) { return block.wait(most); });
    if (bytes) {
      const std::uint64_t begin = part.offset - block.extent().offset;
      std::memcpy(into.data(), bytes->data() + begin, into.size());
    } else if (const ErrorCode code = bytes.error().code;
               may_change(from) || code == ErrorCode::timed_out || code == ErrorCode::cancelled) {
      return Unexpected(bytes.error());
    } else {
      HEADRACE_TRY_STATUS(read_source(mover_, part, into, options, priority));
    }
    block = {};
    if (part.end() == from.end()) return {};
    if (!grid.done()) block = access(grid.next(), options.access);
  }
  return {};
}

PrefetchOptions CacheShards::of_shard(PrefetchOptions options) const {
  options.window = options.window / stretches_.shards();
  return options;
}

Prefetch CacheShards::prefetch(std::span<const Extent> extents, const PrefetchOptions& options) {
  Prefetch plan;
  plan.cache_ = this;
  plan.plans_.resize(stretches_.shards());
  if (cores_.size() == 1 || extents.empty()) {
    plan.plans_[0] = cores_[0]->pump().prefetch(extents, options);
    return plan;
  }
  std::vector<std::vector<Extent>> parts(stretches_.shards());
  for (const Extent& extent : extents) {
    if (extent.valid() && may_change(extent) && stretches_.goes_on(extent)) {
      parts[0].push_back({extent.object, ~std::uint64_t{0}, 1_B});  // counted as invalid
      continue;
    }
    note(to_fetch(extent));
    parts[shard_for(extent)].push_back(extent);
  }
  const PrefetchOptions own = of_shard(options);
  // The shard that is used first fetches first.
  const std::size_t first = shard_for(extents[0]);
  for (std::size_t i = 0; i < stretches_.shards(); ++i) {
    const std::size_t shard = (first + i) & stretches_.mask();
    if (!parts[shard].empty())
      plan.plans_[shard] = cores_[shard]->pump().prefetch(parts[shard], own);
  }
  return plan;
}

// The number of extents that lie in their object, and that one shard of a writable cache can hold.
// Together they have at most 2^63 bytes, so that sums of a position and a window do not overflow.
std::uint64_t CacheShards::count_valid(const Strided& extents) {
  const std::uint64_t length = extents.length.value;
  const Extent first{extents.object, extents.offset, extents.length};
  if (!first.valid() || length == 0 || extents.stride == 0) return 0;
  const std::uint64_t stretch = stretches_.bytes();
  const std::uint64_t unit = unit_of(extents, largest_);
  const bool aligned = extents.offset % length == 0 && extents.stride % length == 0 &&
                       stretch % length == 0 && unit == 1;
  if (cores_.size() > 1 && !aligned) {
    if (may_change(first)) return 0;
    note_length(Bytes{std::min(length + 2 * (unit - 1), largest_.load())});
  }
  const std::uint64_t behind = extents.object->size().value - extents.offset - length;
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 63;
  return std::min({extents.count, behind / extents.stride + 1, kMostBytes / length});
}

Prefetch CacheShards::prefetch(const Strided& extents, const PrefetchOptions& options) {
  Prefetch plan;
  plan.cache_ = this;
  plan.plans_.resize(stretches_.shards());
  Strided valid = extents;
  valid.count = count_valid(extents);
  Prefetch::Progress progress{.planned = extents.count, .invalid = extents.count - valid.count};
  const PrefetchOptions own = of_shard(options);
  const std::uint64_t unit = valid.count == 0 ? 1 : unit_of(valid, largest_);
  const std::size_t first =
      valid.count == 0 ? 0 : shard_for({valid.object, valid.offset, valid.length});
  for (std::size_t i = 0; i < stretches_.shards(); ++i) {
    const std::size_t shard = (first + i) & stretches_.mask();
    Steps::FromShard from;
    if (cores_.size() > 1) {
      from = [this, valid, shard, unit](std::uint64_t at) {
        return stretches_.first_in(shard, valid, at, unit);
      };
    }
    plan.plans_[shard] =
        cores_[shard]->pump().prefetch(valid, std::move(from), std::exchange(progress, {}), own);
  }
  return plan;
}

}  // namespace headrace
