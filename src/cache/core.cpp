// SPDX-License-Identifier: Apache-2.0
#include "cache/core.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/patience.h"
#include "headrace/buffer.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// How long an access waits for a slab that another thread allocates, before it is refused. The
// other thread only asks the kernel and touches the pages.
constexpr Nanoseconds kGrowBound = std::chrono::seconds{30};

// Prints the number of the object, which may be destroyed.
[[noreturn]] void outlived(const CacheEntry& held) {
  const std::string what = fmt::format("a Block outlives its cache: {} at offset {} of object {}",
                                       to_string(Bytes{held.length}), held.offset.load(),
                                       static_cast<std::uint64_t>(held.id.load()));
  check_failed(__FILE__, __LINE__, what.c_str());
}

}  // namespace

Status CacheCore::check(const Machine& machine, const CacheOptions& options) {
  if (options.budgets.empty()) {
    return fail(ErrorCode::invalid, "no budget; give one to at least one node");
  }
  if (options.budgets.size() > CacheEntry::kMostNodes) {
    return fail(ErrorCode::invalid, "{} budgets; a cache can have at most {}",
                options.budgets.size(), CacheEntry::kMostNodes);
  }
  if (options.slab < Bytes{Frames::kDirect}) {
    return fail(ErrorCode::invalid, "slabs of {} are too small; give `slab` 4 KiB or more",
                to_string(options.slab));
  }
  if (!options.placement || !options.eviction) {
    return fail(ErrorCode::invalid, "no placement policy or no eviction order; leave the defaults");
  }
  for (auto budget = options.budgets.begin(); budget != options.budgets.end(); ++budget) {
    const auto node = machine.node(budget->first);
    if (!node) return fail(ErrorCode::invalid, "a budget for {}", node.error().message);
    if (!(*node)->byte_addressable() && (*node)->kind != NodeKind::gpu) {
      return fail(ErrorCode::invalid,
                  "a budget for {} node {}, which no CPU can address; give it to a memory node",
                  to_string((*node)->kind), raw(budget->first));
    }
    if ((options.writable || !options.chain.empty()) && !(*node)->byte_addressable()) {
      return fail(ErrorCode::invalid,
                  "a budget for GPU node {} in a {}; give budgets of memory that CPUs address",
                  raw(budget->first), options.writable ? "writable cache" : "chain");
    }
    if (budget->second == 0_B) {
      return fail(ErrorCode::invalid, "a budget of 0 for node {}; give it more, or none at all",
                  raw(budget->first));
    }
    const auto same = [&](const auto& other) { return other.first == budget->first; };
    if (std::any_of(options.budgets.begin(), budget, same)) {
      return fail(ErrorCode::invalid,
                  "two budgets for node {}; give each node one, in `budgets` or in `chain`",
                  raw(budget->first));
    }
  }
  return {};
}

void Slabs::grow(const Growth& growth) {
  std::uint64_t unmapped = 0;
  {
    const MutexLock lock(state_.mutex);
    unmapped = state_.space.unmapped();
  }
  auto slab = allocate_for(growth);
  std::uint32_t changes = 0;
  bool again = false;
  {
    const Locked lock(state_);
    again = state_.space.grown(growth, std::move(slab), unmapped);
    changes = state_.signals.space_changes.fetch_add(1) + 1;
  }
  state_.mover.waiting().wake_all(state_.signals.space_changes);
  if (again) await(changes);
}

namespace {

// Memory that CacheOptions::allocate returned.
Status check_slab(const Object* slab, Bytes bytes) {
  const std::uint64_t begin = slab == nullptr ? 0
                              : slab->device_address()
                                  ? *slab->device_address()
                                  : reinterpret_cast<std::uintptr_t>(slab->memory());
  const std::uint64_t align =
      slab != nullptr && slab->device_address() ? Frames::kOnGpu : Frames::kDirect;
  if (begin != 0 && begin % align == 0 && slab->size() >= bytes) return {};
  return fail(
      ErrorCode::invalid,
      "CacheOptions::allocate returned {} at {:#x} for a slab of {}; return as much memory, "
      "aligned to {} bytes",
      to_string(slab == nullptr ? Bytes{} : slab->size()), begin, to_string(bytes), align);
}

}  // namespace

Result<std::shared_ptr<const Object>> Slabs::allocate_for(const Growth& growth) const {
  try {
    const NodeId node = state_.options.budgets[growth.node].first;
    if (state_.options.allocate) {
      HEADRACE_TRY(auto slab, state_.options.allocate(node, Bytes{growth.bytes}));
      HEADRACE_TRY_STATUS(check_slab(slab.get(), Bytes{growth.bytes}));
      return slab;
    }
    Placement placement = Placement::on(node);
    placement.pages = state_.options.pages;
    placement.reason = "slab of a cache";
    HEADRACE_TRY(std::shared_ptr<const Object> slab,
                 allocate(state_.mover.machine(), Bytes{growth.bytes}, placement));
    return slab;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

bool Slabs::await(std::uint32_t seen) {
  if (Space::owes_slab()) return false;
  Patience patience(state_.mover.clock(), state_.mover.waiting(), kGrowBound);
  while (state_.signals.space_changes.load() == seen) {
    if (patience.over()) return false;
    patience.sleep(state_.signals.space_changes, seen);
  }
  return true;
}

Status Slabs::reserve(std::uint16_t node) {
  for (;;) {
    std::optional<Growth> wanted;
    {
      const MutexLock lock(state_.mutex);
      if (const auto& error = state_.space.node(node).grow_error) return Unexpected(*error);
      wanted = state_.space.growth({.node = node, .extent = {nullptr, 0, 1_B}});
    }
    if (!wanted) return {};
    grow(*wanted);
  }
}

CacheCore::CacheCore(Mover& mover, CacheOptions options, Accounts& accounts, const void* cache,
                     std::size_t shard, std::size_t shards)
    : state_(mover, std::move(options), accounts, shard, shards),
      fills_(state_, pump_),
      writes_(state_, fills_),
      slabs_(state_),
      moves_(state_, fills_, slabs_),
      pump_(state_, *this, fills_, slabs_, moves_),
      cache_(cache) {}

// No callback holds a Block or makes a plan any more.
CacheCore::~CacheCore() {
  CHECK(state_.signals.running == 0);
  {
    const MutexLock lock(state_.mutex);
    if (const CacheEntry* held = state_.hits.readers.any_pinned()) outlived(*held);
    if (state_.hits.pins() > 0) outlived(*state_.blocks.any_pinned());
  }
  drop_everything();
}

void CacheCore::come_to_rest() {
  writes_.all_back();
  writes_.report_lost();
  {
    const Locked lock(state_);
    (void)state_.blocks.discard(nullptr);
  }
  Fills::AwaitAll copies(fills_);
  drop_everything();
  copies.wait();
  moves_.start_due(Moves::kAll);  // ends those that a callback was about to start
}

void CacheCore::drop_everything() {
  pump_.end_all();
  for (std::size_t i = 0; i < state_.options.budgets.size(); ++i) drop_all(state_, i);
  moves_.start_due(Moves::kAll);  // ends those of dropped blocks
}

Status CacheCore::reserve() {
  for (std::size_t i = 0; i < state_.options.budgets.size(); ++i) {
    HEADRACE_TRY_STATUS(slabs_.reserve(static_cast<std::uint16_t>(i)));
  }
  return {};
}

void CacheCore::pin_again(CacheEntry& entry) {
  if (!state_.origin.here()) return;
  const MutexLock lock(state_.mutex);
  state_.hits.pin(entry);
}

void CacheCore::unpin(CacheEntry& entry, PinSlot* slot, bool own) {
  if (!state_.origin.here()) return;
  {
    const Locked lock(state_);
    bool counted = true;
    if (slot != nullptr) {
      Readers& readers = state_.hits.readers;
      counted = own ? readers.unpin_asked(*slot) : readers.unpin_elsewhere(*slot);
    }
    if (counted) {
      state_.blocks.unpin(entry);
    } else {
      if (state_.space.stalled()) state_.space.offer(entry);
      state_.space.released();
    }
  }
  pump_.pump_if_due(false);
}

// Apart from Block::let_go(), which would otherwise take 6 instructions more in each hit.
void TenantPins::let_go(const Block& block) noexcept {
  CacheCore& cache = *block.cache_;
  cache.pins().release(block);
  auto* const slot = reinterpret_cast<PinSlot*>(block.budget_or_slot_);
  const bool own = slot != nullptr && Readers::own(*slot);
  if (own && cache.readers().unpin(*slot)) return;
  using Writing = Block::Writing;
  if (block.writing_ == Writing::no) return cache.unpin(*block.entry_, slot, own);
  cache.end_write(*block.entry_, block.writing_ == Writing::has);
}

Error without_space(const Shard& shard, NodeId node, Bytes length, Bytes budget) {
  const std::string part = shard.shards > 1 ? fmt::format(" (one of {} shards)", shard.shards) : "";
  if (length > budget) {
    return fail(ErrorCode::exhausted,
                "the block of {} exceeds the budget of {} on node {}{}; access smaller "
                "extents or resize() it",
                to_string(length), to_string(budget), raw(node), part)
        .error();
  }
  return fail(ErrorCode::exhausted,
              "no space for {} on node {}{}: the rest of its budget of {} is held or in "
              "flight; let Blocks go or resize() it",
              to_string(length), raw(node), part, to_string(budget))
      .error();
}

Error foreign_tenant() {
  return fail(ErrorCode::invalid, "a tenant of another cache; ask this one for its tenant()")
      .error();
}

Error CacheCore::why(const Block& block) const {
  using Refusal = Block::Refusal;
  const Extent& extent = block.extent_;
  switch (block.refusal_) {
    case Refusal::told: return *block.refused_;
    case Refusal::forked: return state_.origin.check(kTheCache).error();
    case Refusal::foreign_plan:
      return fail(ErrorCode::invalid,
                  "`plan` is a plan of another cache; name one that this cache's prefetch() "
                  "returned")
          .error();
    case Refusal::invalid:
      if (extent.object == nullptr) {
        return fail(ErrorCode::invalid, "an extent without an object; give one").error();
      }
      return fail(ErrorCode::invalid,
                  "the extent of {} bytes from offset {} does not lie inside its object of {} "
                  "bytes; check offset and length",
                  extent.length.value, extent.offset, extent.object->size().value)
          .error();
    case Refusal::foreign_tenant: return foreign_tenant();
    case Refusal::none:
    case Refusal::no_memory: return out_of_memory().error();
    case Refusal::too_large:
    case Refusal::no_space: break;
  }
  const NodeId node = state_.options.budgets[block.node_or_tenant_].first;
  return without_space(state_.parts, node, block.extent_.length, Bytes{block.budget_or_slot_});
}

bool for_blocks(ShardState& state, const Range& range, const ForBlock& then) {
  bool all = true;
  for (RangeIndex<CacheEntry>::Cursor cursor; !cursor.ended;) {
    std::array<CacheEntry*, PrefetchPlan::kSlice> found;
    const Locked lock(state);
    const auto skip = [&](const CacheEntry& entry) {
      all = all && !entry.kept();
      return entry.kept();
    };
    const auto entries = std::span(found).first(state.hits.index.next(range, cursor, found, skip));
    state.hits.count_pins(entries);
    for (CacheEntry* entry : entries) then(state.blocks, *entry);
    if (!entries.empty()) state.space.released();
  }
  return all;
}

void for_blocks(ShardState& state, std::size_t node, const ForBlock& then) {
  Frames::Walk walk;
  for (bool more = true; more;) {
    std::array<CacheEntry*, PrefetchPlan::kSlice> found;
    std::size_t count = 0;
    const Locked lock(state);
    Frames& frames = state.space.node(node).frames;
    for (std::size_t looks = 0; more && looks < found.size(); ++looks) {
      Frame* const frame = frames.next(walk);
      more = frame != nullptr;
      if (more && entry_of(*frame).detached == 0 && !entry_of(*frame).kept())
        found[count++] = &entry_of(*frame);
    }
    const auto entries = std::span(found).first(count);
    state.hits.count_pins(entries);
    {
      const Frames::GivingMany many(frames);
      for (CacheEntry* entry : entries) then(state.blocks, *entry);
    }
    if (count > 0) state.space.released();
  }
}

void drop_all(ShardState& state, std::size_t node) {
  for_blocks(state, node, [](Blocks& blocks, CacheEntry& entry) {
    blocks.drop(entry, CacheEvent::Kind::evicted);
  });
}

bool CacheCore::invalidate(Extent extent) {
  const auto range = inside(extent);
  if (!state_.origin.here() || !range) return true;
  const bool all = for_blocks(state_, *range, [](Blocks& blocks, CacheEntry& entry) {
    blocks.drop(entry, CacheEvent::Kind::invalidated);
  });
  pump_.pump_if_due(true);
  return all;
}

Status CacheCore::forget(const Object& object, Patience& patience) {
  if (!state_.origin.here()) return {};  // no engine of this process reads it
  invalidate(whole(object));
  return fills_.await_unread(object.id(), patience);
}

std::vector<ObjectId> CacheCore::reading() const {
  if (!state_.origin.here()) return {};
  const MutexLock lock(state_.mutex);
  std::vector<ObjectId> objects = state_.blocks.reading();
  const std::vector<ObjectId> planned = state_.plans.reading();
  objects.insert(objects.end(), planned.begin(), planned.end());
  return objects;
}

void CacheCore::flush() {
  if (!state_.origin.here()) return;
  writes_.all_back();
  for (std::size_t i = 0; i < state_.options.budgets.size(); ++i) {
    for_blocks(state_, i, [](Blocks& blocks, CacheEntry& entry) {
      if (entry.pins == entry.moving && entry.planned == 0) {
        blocks.drop(entry, CacheEvent::Kind::evicted);
      } else if (entry.now() == BlockState::ready) {
        blocks.open(entry);
      }
    });
  }
  free_empty_slabs();
}

void CacheCore::clear() {
  if (!state_.origin.here()) return;
  writes_.all_back();
  drop_everything();
  free_empty_slabs();
}

// Then starts what plans made meanwhile may start.
void CacheCore::free_empty_slabs() {
  if (!state_.options.reserve) {
    const Locked lock(state_);
    state_.space.free_empty_slabs();
  }
  pump_.pump_if_due(true, Pump::kAll);
}

Status CacheCore::resize(NodeId id, Bytes budget) {
  HEADRACE_TRY_STATUS(state_.origin.check(kTheCache));
  std::optional<std::uint16_t> number;
  for (bool more = true; more;) {
    const Locked lock(state_);
    const bool first = !number;
    number = state_.space.number_of(id);
    if (!number) {
      return fail(ErrorCode::absent,
                  "the cache has no budget for node {}; give one in `budgets` when you create it",
                  raw(id));
    }
    Space::Node& node = state_.space.node(*number);
    if (first) {
      if (node.lost) return Unexpected(*node.grow_error);
      node.budget = budget.value;
      node.grow_error.reset();
      state_.chain.hurry();  // moves hold blocks of it
      state_.signals.pump_due = true;
    }
    state_.space.released();
    more = state_.space.fit_budget(node);
  }
  if (state_.options.writable) writes_.clean_node(*number);
  const Status reserved = state_.options.reserve ? slabs_.reserve(*number) : Status{};
  pump_.pump_if_due(true, Pump::kAll);
  return reserved;
}

CacheStats CacheCore::stats(Histogram& wait_time, Histogram& copy_latency) const {
  CacheStats stats;
  if (!state_.origin.here()) return stats;
  {
    const MutexLock lock(state_.mutex);
    stats = state_.blocks.counts;
    stats.hits += state_.hits.readers.hits();
    Hits::ByTenant pinned = state_.hits.pinned_bytes();
    state_.chain.subtract_pinned(pinned);
    stats.bytes_pinned = Bytes{std::accumulate(pinned.begin(), pinned.end(), std::uint64_t{0})};
    stats.tenants = state_.space.tenants(pinned);
    stats.blocks = state_.hits.index.size();
    for (const Space::Node& node : state_.space.nodes()) {
      stats.bytes_used += Bytes{node.used};
      stats.bytes_dirty += Bytes{node.dirty};
    }
  }
  wait_time.add(fills_.wait_time());
  copy_latency.add(fills_.copy_latency());
  return stats;
}

Bytes CacheCore::more_for(NodeId id, Bytes budget) const {
  const MutexLock lock(state_.mutex);
  const auto number = state_.space.number_of(id);
  if (!number) return {};
  const Space::Node& node = state_.space.nodes()[*number];
  if (node.on_gpu || node.lost) return {};
  const Bytes has{node.frames.capacity()};
  return budget > has ? budget - has : Bytes{};
}

}  // namespace headrace
