// SPDX-License-Identifier: Apache-2.0
// Accesses: the shortest path of a hit first, then everything that may be in its way. Then reads,
// which are accesses to the blocks of a grid.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "cache/core.h"
#include "cache/shards.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"

namespace headrace {

// The shortest path of a hit, and nothing else. A thread has a reader only if hits are open. The
// extent is not checked, since an invalid one has no block of exactly its range.
[[gnu::always_inline]] inline Block CacheCore::access(const Extent& asked,
                                                      const AccessOptions& options) {
  Hits& hits = state_.hits;
  Reader* const reader = hits.readers.last();
  if (reader == nullptr || asked.object == nullptr || options.plan != nullptr ||
      !state_.origin.here() || state_.signals.growth_due.load()) [[unlikely]]
    return access_somehow(asked, options);
  // Copied word by word, as the caller wrote it: a wider load would wait for the stores.
  const Extent extent{asked.object, asked.offset, asked.length};
  const Range range = range_of(extent);
  CacheEntry* const entry = hits.index.racing_equal(range);
  const auto lost = [&](PinSlot& slot) { unpin(*entry, &slot, true); };
  PinSlot* const slot =
      entry == nullptr ? nullptr : hits.pin<true>(*reader, *entry, range, asked, lost);
  if (slot == nullptr) [[unlikely]] {
    // A copy made here, since the caller's extent may no longer exist.
    return access_somehow({extent.object, extent.offset, extent.length}, options);
  }
  return {*this, *entry, *slot, extent, entry->bytes()};
}

inline Block CacheShards::access(const Extent& extent, const AccessOptions& options) {
  if (longest_.load() == 0 && !goes_on(extent)) [[likely]]
    return of(extent).access(extent, options);
  const Extent asked = extent;  // a callback that runs meanwhile may free the caller's
  Block block;
  Started all(options.priority);
  access_across(asked, block, options, all);
  return block;
}

Block Cache::access(const Extent& extent) {
  static constinit const AccessOptions kDefault;
  if (only_ != nullptr) [[likely]]
    return only_->access(extent, kDefault);
  return shards_->access(extent, kDefault);
}

Block Cache::access(const Extent& extent, const AccessOptions& options) {
  if (only_ != nullptr) [[likely]]
    return only_->access(extent, options);
  return shards_->access(extent, options);
}

void Cache::access(std::span<const Extent> extents, std::span<Block> blocks,
                   const AccessOptions& options) {
  CHECK(extents.size() == blocks.size());
  for (Block& block : blocks) block = Block{};
  if (only_ != nullptr) return only_->access(extents, blocks, options, nullptr);
  shards_->access(extents, blocks, options);
}

// Neighbours of one shard are one access. The copies of all shards are submitted together.
void CacheShards::access(std::span<const Extent> extents, std::span<Block> blocks,
                         const AccessOptions& options) {
  Started all(options.priority);
  for (std::size_t begin = 0, end = 0; begin < extents.size(); begin = end) {
    CacheCore& core = of(extents[begin]);
    bool across = longest_.load() > 0;
    for (; end < extents.size() && &of(extents[end]) == &core; ++end) {
      across = across || goes_on(extents[end]);
    }
    if (!across) {
      core.access(extents.subspan(begin, end - begin), blocks.subspan(begin, end - begin), options,
                  &all);
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) access_across(extents[i], blocks[i], options, all);
  }
}

// An access in a cache with blocks that continue into another stretch.
void CacheShards::access_across(const Extent& extent, Block& block, const AccessOptions& options,
                                Started& all) {
  CacheCore& own = of(extent);
  if (!here() || !extent.valid() || extent.length.value == 0 || own.is_foreign(options)) {
    return own.access({&extent, 1}, {&block, 1}, options, &all);
  }
  note(extent);
  if (!own.may_cover(range_of(extent)) && find_before(extent, options, block)) {
    own.use(range_of(extent), options);
  } else {
    own.access({&extent, 1}, {&block, 1}, options, &all);
  }
  if (!goes_on(extent)) return;
  // Plans of the other stretches: their items may lie in this extent.
  const Range range = range_of(extent);
  any_shard(range.object, (range.offset >> shift_) + 1, (range.end() - 1) >> shift_,
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
  const std::uint64_t first = (range.offset - std::min(range.offset, longest)) >> shift_;
  return any_shard(range.object, first, range.offset >> shift_, [&](CacheCore& core) {
    return core.may_cover(range) && core.find_there(extent, options, block);
  });
}

// The accesses of one call in one shard that a hit without the lock did not serve.
class CacheAccess {
 public:
  CacheAccess(CacheCore& core, const AccessOptions& options)
      : core_(core), state_(core.state_), options_(options) {}

  // For the extents whose block is still empty.
  void all(std::span<const Extent> extents, std::span<Block> blocks, Started* together);
  // Serves the extent if a block covers it. Starts no copy.
  bool find(const Extent& extent, Block& block);

 private:
  void refuse(const Extent& extent, Block& block, Error why);
  void refuse(const Extent& extent, Block& block, Block::Refusal why);
  void refuse_space(const SpaceRequest& request, Block& block) REQUIRES(state_.mutex);
  void serve(const Extent& extent, Block& block) REQUIRES(state_.mutex);
  void serve_all(std::span<const Extent> extents, std::span<Block> blocks);
  void miss(const Extent& extent, Block& block, Started& all);
  CacheEntry& start(CacheEntry& entry, const SpaceRequest& request, Block& block)
      REQUIRES(state_.mutex);
  void count_miss(const Extent& extent) REQUIRES(state_.mutex);
  bool may_wait(const SpaceRequest& request, std::optional<Patience>& patience)
      REQUIRES(state_.mutex);
  void count_victims(std::uint16_t node);

  CacheCore& core_;
  ShardState& state_;
  const AccessOptions& options_;
};

void CacheAccess::all(std::span<const Extent> extents, std::span<Block> blocks, Started* together) {
  const auto refuse_all = [&](Block::Refusal why) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (blocks[i].cache_ == nullptr) refuse(extents[i], blocks[i], why);
    }
  };
  if (!state_.origin.here()) return refuse_all(Block::Refusal::forked);
  if (core_.is_foreign(options_)) return refuse_all(Block::Refusal::foreign_plan);
  if (extents.size() > 1) serve_all(extents, blocks);
  Started own(options_.priority);
  Started& all = together == nullptr ? own : *together;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Block& block = blocks[i];
    if (block.cache_ != nullptr && !block.missing_) continue;
    try {
      miss(extents[i], block, all);
    } catch (const std::bad_alloc&) {
      refuse(extents[i], block, Block::Refusal::no_memory);
    }
  }
  own.submit();
  if (!state_.signals.take_pump_due() && !state_.signals.growth_due) return;
  all.submit();
  core_.pump().pump(true);
}

void CacheAccess::serve_all(std::span<const Extent> extents, std::span<Block> blocks) {
  try {
    for (std::size_t i = 0; i < extents.size();) {
      const Locked lock(state_);
      state_.hits.join();
      for (const std::size_t end = std::min(extents.size(), i + PrefetchPlan::kSlice); i < end;
           ++i) {
        if (blocks[i].cache_ == nullptr) serve(extents[i], blocks[i]);
      }
    }
  } catch (const std::bad_alloc&) {
    // The other extents are tried one by one.
  }
}

bool CacheAccess::find(const Extent& extent, Block& block) {
  try {
    const Locked lock(state_);
    state_.hits.join();
    serve(extent, block);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (block.missing_) {
    block = Block{};
    return false;
  }
  core_.pump().pump_if_due(true);
  return true;
}

// Makes a Block without a copy.
void CacheAccess::refuse(const Extent& extent, Block& block, Error why) {
  block.refused_ = std::make_unique<Error>(std::move(why));
  refuse(extent, block, Block::Refusal::told);
}

void CacheAccess::refuse(const Extent& extent, Block& block, Block::Refusal why) {
  block.cache_ = &core_;
  block.extent_ = extent;
  block.missing_ = false;
  block.refusal_ = why;
}

// Serves an extent that needs no new copy; otherwise the block is missing.
void CacheAccess::serve(const Extent& extent, Block& block) {
  block.cache_ = &core_;
  block.extent_ = extent;
  if (!extent.valid()) return refuse(extent, block, Block::Refusal::invalid);
  block.missing_ = false;
  if (extent.length.value == 0) return;
  block.missing_ = true;
  CacheEntry* const entry = state_.hits.find(range_of(extent));
  if (entry == nullptr) return;
  const bool ready = state_.blocks.use(*entry, extent, options_);
  block.slot_ = state_.hits.pin_in_slot(*entry);
  block.entry_ = entry;
  block.hit_ = ready;
  if (ready) block.bytes_ = entry->bytes_from(extent.offset);
  block.missing_ = false;
}

// Serves the extent from a block that exists by now, refuses it, or adds a new block to `all`.
void CacheAccess::miss(const Extent& extent, Block& block, Started& all) {
  using Outcome = Space::Outcome;
  Targets targets(state_.destinations, extent, options_.initiator);
  const Result<Destination>& to = targets.first();
  SpaceRequest request{
      .node = to ? to->node : std::uint16_t{0}, .extent = extent, .priority = options_.priority};
  Spare spare(state_);
  bool late = false;    // another thread's slab did not arrive in time
  bool waited = false;  // a block found now was made meanwhile
  std::optional<Patience> patience;
  Backoff naps(kFirstSleep, kLongestSleep);
  for (;;) {
    std::optional<Growth> wanted;
    CacheEntry* started = nullptr;
    Outcome space = Outcome::none;
    std::uint32_t changes = 0;
    bool elsewhere = false;
    bool chosen = false;
    {
      const Locked lock(state_);
      state_.hits.join();
      changes = state_.signals.space_changes.load();
      serve(extent, block);
      if (!block.missing_) {
        block.hit_ = block.hit_ && !waited;
        return;
      }
      if (to) {
        spare.entry = &state_.blocks.take(spare.entry);
        space = state_.space.make(*spare.entry, request, wanted);
      }
      if (space == Outcome::growing && late) space = Outcome::none;
      elsewhere = space == Outcome::none && targets.more();
      if (space == Outcome::none && !elsewhere && to) request.node = targets.again();
      if (space == Outcome::found) {
        count_miss(extent);  // may fail: the entry is still a spare
        started = &start(*std::exchange(spare.entry, nullptr), request, block);
        chosen = state_.space.choose_victims_ahead(state_.space.node(request.node));
      } else if (space == Outcome::none && !elsewhere && (!to || !may_wait(request, patience))) {
        count_miss(extent);
        ++state_.blocks.counts.refusals;
        if (!to) return refuse(extent, block, to.error());
        return refuse_space(request, block);
      } else if (space == Outcome::none && !elsewhere) {
        if (state_.space.stall()) state_.space.let_go();  // else it is refused without a search
      }
    }
    if (started != nullptr) {
      all.add(core_.fills_, *started);
      if (!chosen) return;
      all.submit();  // the fence takes a while
      return count_victims(request.node);
    }
    waited = waited || !elsewhere;
    if (elsewhere) {
      request.node = targets.next();
    } else if (wanted) {
      core_.slabs_.grow(*wanted);  // before a callback of what is submitted waits for this slab
    } else if (space == Outcome::growing) {
      all.submit();
      late = !core_.slabs_.await(changes);
    } else {
      all.submit();
      state_.mover.poll();
      patience->sleep(state_.signals.space_changes, changes, naps.next());
      if (options_.stop != nullptr && (*options_.stop)()) patience->give_up();
    }
  }
}

CacheEntry& CacheAccess::start(CacheEntry& entry, const SpaceRequest& request, Block& block) {
  state_.blocks.start(entry, request);
  entry.used = 1;
  block.slot_ = state_.hits.pin_in_slot(entry);
  block.entry_ = &entry;
  block.missing_ = false;
  return entry;
}

void CacheAccess::count_victims(std::uint16_t node) {
  state_.hits.readers.fence();
  const MutexLock lock(state_.mutex);
  state_.space.count_victims(state_.space.node(node));
}

void CacheAccess::count_miss(const Extent& extent) {
  ++state_.blocks.counts.misses;
  state_.blocks.emit(CacheEvent::Kind::miss, extent, false);
  state_.plans.use(range_of(extent), options_);
}

// Whether to wait until a block is released. Not in a callback: threads that hold blocks may wait
// for it.
bool CacheAccess::may_wait(const SpaceRequest& request, std::optional<Patience>& patience) {
  if (options_.space_timeout <= Nanoseconds{0} || state_.mover.in_callback()) return false;
  if (request.extent.length.value > state_.space.node(request.node).budget) return false;
  if (!patience) {
    patience.emplace(state_.mover.clock(), state_.mover.waiting(), options_.space_timeout);
  }
  return !patience->over();
}

void CacheAccess::refuse_space(const SpaceRequest& request, Block& block) {
  const Space::Node& node = state_.space.node(request.node);
  const bool too_large = request.extent.length.value > node.budget;
  if (!too_large) state_.space.stall();  // from now on a release starts another search
  if (node.grow_error) return refuse(request.extent, block, *node.grow_error);
  using Refusal = Block::Refusal;
  refuse(request.extent, block, too_large ? Refusal::too_large : Refusal::no_space);
  block.refused_by_ = request.node;
  block.refused_budget_ = Bytes{node.budget};
}

// `equal_first`: a block of exactly the extent is likely.
bool CacheCore::hit(const Extent& extent, Block& block, bool equal_first) {
  Hits& hits = state_.hits;
  if (!hits.open() || !state_.origin.here() || !extent.valid() || extent.length.value == 0)
    return false;
  Reader* const reader = hits.readers.mine();
  if (reader == nullptr) return false;
  const Range range = range_of(extent);
  if (hits.index.is_growing()) [[unlikely]] {
    // Blocks that are hit cause no insertions, which otherwise move the items.
    constexpr std::size_t kCells = 256;
    const MutexLock lock(state_.mutex);
    hits.index.move_some(kCells);
  }
  CacheEntry* entry = equal_first ? hits.index.racing_equal(range) : nullptr;
  if (entry == nullptr) entry = hits.find_wider(range);
  if (entry == nullptr) return false;
  const auto lost = [&](PinSlot& slot) { unpin(*entry, &slot, true); };
  PinSlot* const slot = hits.pin<false>(*reader, *entry, range, extent, lost);
  if (slot == nullptr) return false;
  block = Block(*this, *entry, *slot, extent, entry->bytes_from(range.offset));
  if (state_.signals.growth_due.load()) [[unlikely]]
    pump_.pump(true);
  return true;
}

// Pins the blocks of `extents` that need no lock. False: some are left. The memory that several
// lookups read is prefetched: first the cell, then the entry that the cell points to.
bool CacheCore::hit_all(std::span<const Extent> extents, std::span<Block> blocks) {
  constexpr std::size_t kAhead = 4;
  const auto range = [&](std::size_t i) {
    return extents[i].object == nullptr ? Range{} : range_of(extents[i]);
  };
  const RangeIndex<CacheEntry>& index = state_.hits.index;
  bool all = true;
  for (std::size_t i = 0; i < extents.size() + 2 * kAhead; ++i) {
    if (i < extents.size()) index.ask_for_cell(range(i));
    if (i >= kAhead && i - kAhead < extents.size()) index.ask_for_item(range(i - kAhead));
    if (i >= 2 * kAhead && !hit(extents[i - 2 * kAhead], blocks[i - 2 * kAhead], true)) all = false;
  }
  return all;
}

[[gnu::noinline]] Block CacheCore::access_somehow(const Extent& asked,
                                                  const AccessOptions& options) {
  const Extent extent = asked;  // a callback that runs meanwhile may free the caller's
  Block block;
  if (options.plan != nullptr || !hit(extent, block, false)) {
    CacheAccess(*this, options).all({&extent, 1}, {&block, 1}, nullptr);
  }
  return block;
}

void CacheCore::access(std::span<const Extent> extents, std::span<Block> blocks,
                       const AccessOptions& options, Started* together) {
  if (options.plan == nullptr && hit_all(extents, blocks)) return;
  CacheAccess(*this, options).all(extents, blocks, together);
}

bool CacheCore::find_there(const Extent& extent, const AccessOptions& options, Block& block) {
  if (options.plan == nullptr && hit(extent, block, false)) return true;
  return CacheAccess(*this, options).find(extent, block);
}

void CacheCore::use(const Range& range, const AccessOptions& options) {
  {
    const Locked lock(state_);
    if (state_.plans.empty()) return;
    state_.plans.use(range, options);
  }
  pump_.pump_if_due(true);
}

bool CacheCore::is_foreign(const AccessOptions& options) const {
  if (options.plan == nullptr) return false;
  const void* const cache = options.plan->cache_;
  return cache != nullptr && cache != cache_;
}

// In a child of fork() the slot is the child's own.
void Block::let_go() noexcept {
  const bool own = slot_ != nullptr && Readers::own(*slot_);
  if (own && cache_->readers().unpin(*slot_)) [[likely]]
    return;
  cache_->unpin(*entry_, slot_, own);
}

namespace {

// Blocks in flight for one read: enough to keep an SSD's queue busy, and few pins.
constexpr std::size_t kAhead = 16;
// How long until AccessOptions::stop is asked again.
constexpr Nanoseconds kTurn = std::chrono::milliseconds{50};

// The blocks of a range of an object, on a grid from the object's start.
class Grid {
 public:
  Grid(const Extent& range, Bytes block)
      : range_(range),
        block_(block.value),
        first_(range.offset / block.value),
        end_((range.end() + block.value - 1) / block.value) {}

  std::uint64_t blocks() const { return end_ - first_; }
  Extent block(std::uint64_t number) const {
    const std::uint64_t begin = (first_ + number) * block_;
    const std::uint64_t size = range_.object->size().value;
    return {range_.object, begin, Bytes{std::min(block_, size - begin)}};
  }
  // The bytes of the range that lie in this block.
  Extent part(std::uint64_t number) const {
    const Extent whole = block(number);
    const std::uint64_t begin = std::max(whole.offset, range_.offset);
    return {range_.object, begin, Bytes{std::min(whole.end(), range_.end()) - begin}};
  }

 private:
  const Extent range_;
  const std::uint64_t block_;
  const std::uint64_t first_;
  const std::uint64_t end_;
};

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
                   const ReadOptions& options) {
  if (const std::byte* bytes = from.memory()) {
    std::memcpy(to.data(), bytes, to.size());
    return {};
  }
  const MemoryRange range(to, home_of(mover.machine()));
  const Transfer transfer = mover.copy(whole(range), from, {.priority = options.access.priority});
  auto moved = wait_in_turns(options, [&](Nanoseconds most) { return transfer.wait(most); });
  if (moved) return {};
  // Nothing writes to the caller's memory after the return.
  transfer.cancel();
  while (!transfer.done()) (void)transfer.wait(options.timeout);
  return Unexpected(std::move(moved).error());
}

}  // namespace

Status CacheShards::read(const Extent& from, std::span<std::byte> to, const ReadOptions& options) {
  if (!from.valid()) return fail(ErrorCode::invalid, "the extent is outside its object");
  if (to.size() != from.length.value) {
    return fail(ErrorCode::invalid, "{} bytes for an extent of {}", to.size(), from.length.value);
  }
  if (options.block == Bytes{0}) return fail(ErrorCode::invalid, "blocks of 0 bytes");
  if (to.empty()) return {};
  const Grid grid(from, options.block);
  const std::uint64_t count = grid.blocks();
  std::array<Extent, kAhead> extents;
  std::array<Block, kAhead> blocks;  // block i is at i % kAhead
  const std::size_t first = std::min<std::uint64_t>(kAhead, count);
  for (std::size_t i = 0; i < first; ++i) extents[i] = grid.block(i);
  access(std::span(extents).first(first), std::span(blocks).first(first), options.access);
  for (std::uint64_t i = 0; i < count; ++i) {
    Block& block = blocks[i % kAhead];
    const Extent part = grid.part(i);
    const auto into = to.subspan(part.offset - from.offset, part.length.value);
    const auto bytes = wait_in_turns(options, [&](Nanoseconds most) { return block.wait(most); });
    if (bytes) {
      const std::uint64_t begin = part.offset - block.extent().offset;
      std::memcpy(into.data(), bytes->data() + begin, into.size());
    } else if (const ErrorCode code = bytes.error().code;
               code == ErrorCode::timed_out || code == ErrorCode::cancelled) {
      return Unexpected(bytes.error());
    } else {
      HEADRACE_TRY_STATUS(read_source(mover_, part, into, options));
    }
    block = {};
    if (i + kAhead < count) block = access(grid.block(i + kAhead), options.access);
  }
  return {};
}

}  // namespace headrace
