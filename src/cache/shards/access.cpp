// SPDX-License-Identifier: Apache-2.0
// Accesses: the shortest path of a hit first, then everything that may be in its way.
#include <algorithm>
#include <new>
#include <span>
#include <tuple>
#include <utility>

#include "cache/core.h"
#include "cache/shards/shards.h"
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
  if (reader == nullptr || asked.object == nullptr || options.plan != nullptr || options.write ||
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
  if (longest_.load() == 0 && !stretches_.goes_on(extent) && !is_chunked(extent)) [[likely]]
    return of(extent).access(extent, options);
  return access_counted(extent, options);
}

[[gnu::noinline]] Block CacheShards::access_counted(const Extent& asked,
                                                    const AccessOptions& options) {
  const Extent extent = asked;  // a callback that runs meanwhile may free the caller's
  const auto across = [&] {
    Block block;
    Started all;
    access_across(extent, block, options, all);
    return block;
  };
  const bool in_one = cores_.size() == 1 || (longest_.load() == kCounted &&
                                             !stretches_.goes_on(extent) && !is_chunked(extent));
  // Made in place: moving it took 90 instructions of 418.
  Block block = accounts_.pins.any() ? access_charged(extent, options, in_one)
                : in_one             ? of(extent).access(extent, options)
                                     : across();
  count(options.tenant, block);
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
  if (accounts_.pins.any()) {
    for (std::size_t i = 0; i < extents.size(); ++i)
      blocks[i] = access_counted(extents[i], options);
    return;
  }
  Started all;
  for (std::size_t begin = 0, end = 0; begin < extents.size(); begin = end) {
    CacheCore& core = of(extents[begin]);
    bool across = cores_.size() > 1 && longest_.load() > kCounted;
    for (; end < extents.size() && &of(extents[end]) == &core; ++end) {
      across = across || (cores_.size() > 1 &&
                          (stretches_.goes_on(extents[end]) || is_chunked(extents[end])));
    }
    if (!across) {
      core.access(extents.subspan(begin, end - begin), blocks.subspan(begin, end - begin), options,
                  &all);
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) access_across(extents[i], blocks[i], options, all);
  }
  for (const Block& block : blocks) count(options.tenant, block);
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

  void refuse(const Extent& extent, Block& block, Error why);

 private:
  enum class Next : std::uint8_t { done, submit, elsewhere, again, grow, await_slab, wait };
  struct Step;
  struct Miss;
  void refuse(const Extent& extent, Block& block, Block::Refusal why);
  void give_up_writing(const Extent& extent);
  void refuse_space(const SpaceRequest& request, Block& block) REQUIRES(state_.mutex);
  void serve(const Extent& extent, Block& block) REQUIRES(state_.mutex);
  void serve_all(std::span<const Extent> extents, std::span<Block> blocks);
  void miss(const Extent& extent, Block& block, Started& all);
  CacheEntry& start(CacheEntry& entry, const SpaceRequest& request, Block& block)
      REQUIRES(state_.mutex);
  void count_miss(const Extent& extent) REQUIRES(state_.mutex);
  bool may_wait(std::optional<Patience>& patience, Nanoseconds timeout);
  Step look(Miss& miss, const Result<Destination>& to);
  Next without_space(Miss& miss, const Result<Destination>& to) REQUIRES(state_.mutex);
  Next refuse_turn(Miss& miss) REQUIRES(state_.mutex);
  void serve_write(const Extent& extent, Block& block) REQUIRES(state_.mutex);
  bool may_read(const Extent& extent, const CacheEntry* found, Block& block) REQUIRES(state_.mutex);
  void count_victims(std::uint16_t node);

  CacheCore& core_;
  ShardState& state_;
  const AccessOptions& options_;
  bool blocked_ = false;  // the last serve() found the bytes held
  bool polite_ = true;    // lets writers go first that wait
};

void CacheAccess::all(std::span<const Extent> extents, std::span<Block> blocks, Started* together) {
  const auto refuse_all = [&](Block::Refusal why) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (blocks[i].cache_ == nullptr) refuse(extents[i], blocks[i], why);
    }
  };
  if (!state_.origin.here()) return refuse_all(Block::Refusal::forked);
  if (core_.is_foreign(options_)) return refuse_all(Block::Refusal::foreign_plan);
  if (!has_tenant(state_.options, options_.tenant))
    return refuse_all(Block::Refusal::foreign_tenant);
  // An access of a plan usually finds its block.
  if ((extents.size() > 1 || options_.plan != nullptr) && !options_.write)
    serve_all(extents, blocks);
  Started own;
  Started& all = together == nullptr ? own : *together;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Block& block = blocks[i];
    if (block.cache_ != nullptr && !block.missing_) continue;
    try {
      auto why = options_.write ? core_.writes_.refusal(extents[i]) : std::nullopt;
      if (why) {
        refuse(extents[i], block, *std::move(why));
      } else {
        miss(extents[i], block, all);
      }
    } catch (const std::bad_alloc&) {
      if (options_.write) give_up_writing(extents[i]);
      refuse(extents[i], block, Block::Refusal::no_memory);
    }
  }
  own.submit();
  if (state_.signals.clean_due.load()) [[unlikely]] {
    all.submit();
    core_.writes_.start_due();
  }
  if (!state_.signals.take_pump_due() && !state_.signals.growth_due &&
      !state_.signals.moves_due.load()) {
    return;
  }
  all.submit();
  core_.pump().pump(true);
}

void CacheAccess::give_up_writing(const Extent& extent) {
  if (!extent.valid()) return;
  const Locked lock(state_);
  state_.blocks.leave_write(range_of(extent));
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
  blocked_ = false;
  if (options_.write) return serve_write(extent, block);
  CacheEntry* const entry = state_.hits.find(range_of(extent));
  if (state_.options.writable && !may_read(extent, entry, block)) return;
  if (entry == nullptr) return;
  const bool ready = state_.blocks.use(*entry, extent, options_);
  block.slot_ = state_.hits.pin_in_slot(*entry);
  block.entry_ = entry;
  block.hit_ = ready;
  if (ready) block.bytes_ = entry->bytes_from(extent.offset);
  block.missing_ = false;
}

// False: the bytes are held, or the access is refused.
bool CacheAccess::may_read(const Extent& extent, const CacheEntry* found, Block& block) {
  using Turn = Blocks::Turn;
  const Error* why = nullptr;
  const Turn turn = state_.blocks.may_read(range_of(extent), found, polite_, why);
  if (turn == Turn::refused) {
    refuse(extent, block, Writes::cannot_go_back(extent, *why));
  }
  blocked_ = turn == Turn::wait;
  if (blocked_) state_.blocks.await();
  return turn == Turn::granted || turn == Turn::absent;
}

void CacheAccess::serve_write(const Extent& extent, Block& block) {
  using Turn = Blocks::Turn;
  if (const File* const file = core_.writes_.file_of(extent)) state_.blocks.files.note(*file);
  CacheEntry* entry = nullptr;
  const Turn turn = state_.blocks.enter_write(range_of(extent), entry);
  if (turn == Turn::wait) {
    blocked_ = true;
    state_.chain.hurry();  // the block may be one that waits for its move
    return state_.blocks.await();
  }
  if (turn == Turn::refused) {
    state_.blocks.leave_write(range_of(extent));
    return refuse(extent, block, Writes::overlaps_changed(extent));
  }
  if (turn == Turn::absent) return;
  // Before use(), which may fail: from here on the Block releases it.
  block.entry_ = entry;
  block.hit_ = true;
  block.bytes_ = entry->bytes_from(extent.offset);
  block.writing_ = Block::Writing::may;
  block.missing_ = false;
  (void)state_.blocks.use(*entry, extent, options_);
}

void CacheCore::refuse(const Extent& extent, Block& block, Error why) {
  if (why.code == ErrorCode::exhausted) {
    const Locked lock(state_);
    ++state_.blocks.counts.misses;
    ++state_.blocks.counts.refusals;
  }
  CacheAccess(*this, {}).refuse(extent, block, std::move(why));
}

// The next step of a miss, done without the lock.
struct CacheAccess::Step {
  Next next = Next::wait;
  CacheEntry* started = nullptr;
  bool chosen = false;  // victims whose pins must be counted
  std::optional<Growth> wanted;
  std::uint32_t changes = 0;  // Signals::space_changes before
};

// An access that found no ready block. Its waits have a bound each.
struct CacheAccess::Miss {
  Miss(CacheAccess& access, const Extent& to_read, Block& to_fill)
      : extent(to_read),
        block(to_fill),
        targets(access.state_.destinations, to_read, access.options_.initiator),
        spare(access.state_) {}

  const Extent& extent;
  Block& block;
  Targets targets;
  SpaceRequest request;
  Spare spare;
  bool late = false;    // another thread's slab did not arrive in time
  bool waited = false;  // a block found now was made meanwhile
  std::optional<Patience> space;
  std::optional<Patience> turn;
};

// Serves the extent from a block that exists by now, refuses it, or adds a new block to `all`.
void CacheAccess::miss(const Extent& extent, Block& block, Started& all) {
  Miss miss(*this, extent, block);
  const Result<Destination>& to = miss.targets.first();
  const std::uint32_t tenant =
      number_of(state_.parts.accounts.owners.of(extent.object, options_.tenant));
  miss.request = {.node = to ? to->node : std::uint16_t{0},
                  .tenant = tenant,
                  .extent = whole_chunks(extent),
                  .priority = priority_for(state_.options.tenants, tenant, options_.priority),
                  .keep = options_.keep,
                  .write = options_.write};
  Backoff naps(kFirstSleep, kLongestSleep);
  for (;;) {
    const Step step = look(miss, to);
    if (step.next == Next::done) return;
    if (step.next == Next::submit) {
      all.add(core_.fills_, *step.started, miss.request.priority);
      if (!step.chosen) return;
      all.submit();  // the fence takes a while
      return count_victims(miss.request.node);
    }
    if (step.next == Next::again) {
      // Ends those that find no space, so that their blocks can be evicted.
      if (miss.request.last_resort) core_.moves_.start_due();
      continue;
    }
    miss.waited = miss.waited || step.next != Next::elsewhere;
    if (step.next == Next::elsewhere) {
      miss.request.node = miss.targets.next();
    } else if (step.next == Next::grow) {
      core_.slabs_.grow(
          *step.wanted);  // before a callback of what is submitted waits for this slab
    } else if (step.next == Next::await_slab) {
      all.submit();
      miss.late = !core_.slabs_.await(step.changes);
    } else {
      all.submit();
      core_.writes_.start_due();
      core_.moves_.start_due();
      state_.mover.poll();
      Patience& patience = blocked_ ? *miss.turn : *miss.space;
      patience.sleep(state_.signals.space_changes, step.changes, naps.next());
      if (options_.stop != nullptr && (*options_.stop)()) patience.give_up();
      if (blocked_) polite_ = false;  // from now on no reader waits for a writer that waits
    }
  }
}

CacheAccess::Step CacheAccess::look(Miss& miss, const Result<Destination>& to) {
  using Outcome = Space::Outcome;
  const auto& [extent, block] = std::tie(miss.extent, miss.block);
  Step step;
  const Locked lock(state_);
  state_.hits.join();
  step.changes = state_.signals.space_changes.load();
  serve(extent, block);
  if (!block.missing_) {
    block.hit_ = block.hit_ && !miss.waited;
    step.next = Next::done;
    return step;
  }
  if (blocked_) {
    if (!may_wait(miss.turn, options_.lock_timeout)) step.next = refuse_turn(miss);
    return step;
  }
  Outcome space = Outcome::none;
  if (to) {
    miss.spare.entry = &state_.blocks.take(miss.spare.entry);
    space = state_.space.make(*miss.spare.entry, miss.request, step.wanted);
  }
  if (space == Outcome::growing && miss.late) space = Outcome::none;
  if (space == Outcome::growth) step.next = Next::grow;
  if (space == Outcome::growing) step.next = Next::await_slab;
  if (space == Outcome::found) {
    count_miss(extent);  // may fail: the entry is still a spare
    step.next = Next::submit;
    step.started = &start(*std::exchange(miss.spare.entry, nullptr), miss.request, block);
    step.chosen = state_.space.choose_victims_ahead(state_.space.node(miss.request.node));
  }
  if (space == Outcome::none) step.next = without_space(miss, to);
  return step;
}

CacheAccess::Next CacheAccess::without_space(Miss& miss, const Result<Destination>& to) {
  if (miss.targets.more()) return Next::elsewhere;
  if (to && state_.space.go_on_in_chain(miss.request)) return Next::again;
  if (to && state_.options.chain.empty()) miss.request.node = miss.targets.again();
  if (std::exchange(miss.request.extent, miss.extent) != miss.extent) return Next::again;
  const bool fits = miss.request.extent.length.value <= state_.space.node(miss.request.node).budget;
  if (to && fits && state_.options.writable && state_.chain.clean_some(miss.request.node) &&
      may_wait(miss.turn, options_.lock_timeout)) {
    state_.blocks.await();
    blocked_ = true;
    return Next::wait;
  }
  if (to && fits && may_wait(miss.space, options_.space_timeout)) {
    if (state_.space.stall()) state_.space.let_go();  // else it is refused without a search
    return Next::wait;
  }
  count_miss(miss.extent);
  ++state_.blocks.counts.refusals;
  if (to) {
    refuse_space(miss.request, miss.block);
  } else {
    refuse(miss.extent, miss.block, to.error());
  }
  return Next::done;
}

// Another Block holds the bytes.
CacheAccess::Next CacheAccess::refuse_turn(Miss& miss) {
  if (options_.write) state_.blocks.leave_write(range_of(miss.extent));
  count_miss(miss.extent);
  ++state_.blocks.counts.refusals;
  refuse(miss.extent, miss.block, Writes::held_elsewhere(miss.extent));
  return Next::done;
}

CacheEntry& CacheAccess::start(CacheEntry& entry, const SpaceRequest& request, Block& block) {
  state_.blocks.start(entry, request);
  entry.used = 1;
  block.slot_ = state_.hits.pin_in_slot(entry);
  if (request.write) block.writing_ = Block::Writing::may;
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

// Whether to wait for another thread. Not in a callback: threads that hold blocks may wait for it.
bool CacheAccess::may_wait(std::optional<Patience>& patience, Nanoseconds timeout) {
  if (timeout <= Nanoseconds{0} || state_.mover.in_callback()) return false;
  if (!patience) patience.emplace(state_.mover.clock(), state_.mover.waiting(), timeout);
  return !patience->over();
}

void CacheAccess::refuse_space(const SpaceRequest& request, Block& block) {
  const Space::Node& node = state_.space.node(request.node);
  const bool too_large = request.extent.length.value > node.budget;
  if (!too_large) state_.space.stall();  // from now on a release starts another search
  const Blocks::Dirty dirty = state_.blocks.dirty(nullptr, ~std::uint64_t{0});
  if (!too_large && dirty.failed > 0) {
    return refuse(request.extent, block, Writes::cannot_go_back(request.extent, *dirty.error));
  }
  if (!too_large && node.tenants != nullptr) {
    // Another thread may have asked since.
    node.tenants->ask(request.tenant, request.extent.length.value, node.budget);
    if (node.tenants->is_full()) return refuse(request.extent, block, node.tenants->full());
  }
  if (node.grow_error) return refuse(request.extent, block, *node.grow_error);
  using Refusal = Block::Refusal;
  refuse(request.extent, block, too_large ? Refusal::too_large : Refusal::no_space);
  block.node_or_tenant_ = request.node;
  block.budget_or_slot_ = node.budget;
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
  if (options.plan != nullptr || options.write || !hit(extent, block, false)) {
    CacheAccess(*this, options).all({&extent, 1}, {&block, 1}, nullptr);
  }
  return block;
}

void CacheCore::access(std::span<const Extent> extents, std::span<Block> blocks,
                       const AccessOptions& options, Started* together) {
  if (options.plan == nullptr && !options.write && hit_all(extents, blocks)) return;
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
  if (node_or_tenant_ != 0) return TenantPins::let_go(*this);
  if (writing_ != Writing::no) return cache_->end_write(*entry_, writing_ == Writing::has);
  cache_->unpin(*entry_, slot_, own);
}

}  // namespace headrace
