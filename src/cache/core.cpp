// SPDX-License-Identifier: Apache-2.0
#include "cache/core.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// After this the Mover has lost a copy, whose memory must not be freed: an engine may write to it.
constexpr Nanoseconds kEndBound = kShutdownBound;
// The thread that ends a copy wakes the waiting one. The slice is for a Mover that must be polled.
constexpr Nanoseconds kEndSlice = std::chrono::milliseconds{1};

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
    return fail(ErrorCode::invalid,
                "slabs of {} are too small; give CacheOptions::slab 4 KiB or more",
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
    const auto same = [&](const auto& other) { return other.first == budget->first; };
    if (std::any_of(options.budgets.begin(), budget, same)) {
      return fail(ErrorCode::invalid, "two budgets for node {}; add them up", raw(budget->first));
    }
  }
  return {};
}

void DeferredActions::act() {
  if (awaited != nullptr) core_.mover_.waiting().wake_all(*awaited);
  if (lists_) {
    for (const auto& [transfer, priority] : lists_->promote) transfer.promote(priority);
    if (lists_->first_cancelled) lists_->first_cancelled->cancel();
    for (const Transfer& transfer : lists_->more_cancelled) transfer.cancel();
    if (!lists_->free.empty()) core_.give_back(std::move(lists_->free));
  }
  if (wake) core_.mover_.waiting().wake_all(core_.space_changes_);
  if (!lists_) return;
  for (const auto& then : lists_->thens) then();
}

// The entries and their Fills stay until complete() has run.
void CacheCore::Started::submit_all() noexcept {
  const auto blocks = std::span(blocks_).first(std::exchange(count_, 0));
  CacheCore& core = *blocks[0].first;  // all have one Mover and one route
  std::array<Transfer, kStarts> transfers;
  try {
    const MoveOptions options{
        .priority = asked_, .hint = CopyHint::automatic, .route = core.options_.route};
    std::array<MovePair, kStarts> pairs;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const CacheEntry& entry = *blocks[i].second;
      pairs[i] = {entry.fill->to, entry.extent()};
    }
    if (blocks.size() == 1) {
      transfers[0] = core.mover_.copy(pairs[0].to, pairs[0].from, options);
    } else {
      core.mover_.copy(std::span(pairs).first(blocks.size()),
                       std::span(transfers).first(blocks.size()), options);
    }
  } catch (const std::bad_alloc&) {
    const Error why = out_of_memory().error();
    for (const auto& [owner, entry] : blocks) owner->complete(*entry, &why, {}, true);
    return;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].first->follow(*blocks[i].second, transfers[i], asked_);
  }
}

CacheCore::CacheCore(Mover& mover, CacheOptions options, std::size_t shard, std::size_t shards)
    : mover_(mover), options_(std::move(options)), shard_(shard), shards_(shards) {
  CHECK(options_.budgets.size() <= kSpills);
  for (const auto& [id, budget] : options_.budgets) {
    const bool on_gpu = !mover_.machine().find(id)->byte_addressable();
    nodes_.push_back({.id = id,
                      .budget = budget.value,
                      .frames = Frames(!on_gpu),
                      .order = options_.eviction(),
                      .on_gpu = on_gpu});
    nodes_.back().victims.reserve(kVictims);
    hits_open_ = hits_open_ && nodes_.back().order->marks();
  }
  if (options_.observer) hits_open_ = false;
  for (const auto& node : mover_.machine().nodes) {
    for (const unsigned cpu : node.cpus) {
      if (cpu >= node_of_cpu_.size()) node_of_cpu_.resize(cpu + 1);
      node_of_cpu_[cpu] = node.id;
    }
  }
}

CacheCore::~CacheCore() {
  end();
  const MutexLock lock(mutex_);  // the thread that ended the last copy has released it
}

bool CacheCore::end() {
  {
    const MutexLock lock(mutex_);
    if (const CacheEntry* held = readers_.any_pinned()) outlived(*held);
    if (counts_.pins > 0) outlived(*entries_.any_pinned());
    ++watchers_;
  }
  end_plans();
  drop_all();
  const bool waits = running_.load() != 0;
  // In a callback, the copies that it would wait for may need this thread.
  CHECK(!waits || !mover_.in_callback());
  Patience patience(mover_.clock(), mover_.waiting(), kEndBound);
  for (auto left = running_.load(); left != 0; left = running_.load()) {
    CHECK(!patience.over());
    mover_.poll();
    patience.sleep(running_, left, kEndSlice);
  }
  const MutexLock lock(mutex_);
  --watchers_;
  return waits;
}

Status CacheCore::reserve() {
  for (std::uint16_t i = 0; i < nodes_.size(); ++i) HEADRACE_TRY_STATUS(reserve_all_of(i));
  return {};
}

void CacheCore::pin_again(CacheEntry& entry) {
  if (!origin_.here()) return;
  const MutexLock lock(mutex_);
  pin(entry);
}

BlockState CacheCore::wait(CacheEntry& entry, Nanoseconds timeout, Nanoseconds& waited) {
  if (entry.now() != BlockState::filling && waited == Nanoseconds{0}) return entry.now();
  if (take_pump_due() || growth_due_) pump(true);
  const Nanoseconds begin = mover_.clock().now();
  sleep(entry, timeout);
  waited += std::max(mover_.clock().now() - begin, Nanoseconds{1});
  const BlockState state = entry.now();
  if (state != BlockState::filling) {
    wait_time_.record(static_cast<std::uint64_t>(std::exchange(waited, Nanoseconds{0}).count()));
  }
  return state;
}

void CacheCore::sleep(CacheEntry& entry, Nanoseconds timeout) {
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  Backoff naps(kFirstSleep, kLongestSleep);
  while (entry.now() == BlockState::filling) {
    mover_.poll(std::span<const std::byte>(entry.data.load(), entry.length), patience.left());
    std::uint32_t seen = entry.word.load();
    if (entry.now() != BlockState::filling || patience.over()) return;
    if ((seen & CacheEntry::kAwaited) == 0) {
      if (!entry.word.compare_exchange_strong(seen, seen | CacheEntry::kAwaited)) continue;
      seen |= CacheEntry::kAwaited;
    }
    patience.sleep(entry.word, seen, naps.next());
  }
}

Error CacheCore::why(const Block& block) const {
  switch (block.refusal_) {
    case Refusal::told: return *block.refused_;
    case Refusal::invalid:
      return {ErrorCode::invalid,
              "the extent does not lie inside its object; check offset and length"};
    case Refusal::none:
    case Refusal::no_memory: return out_of_memory().error();
    case Refusal::too_large:
    case Refusal::no_space: break;
  }
  const NodeId node = nodes_[block.refused_by_].id;
  const std::string length = to_string(block.extent_.length);
  const std::string budget = to_string(block.refused_budget_);
  const std::string shard = shards_ > 1 ? fmt::format(" (one of {} shards)", shards_) : "";
  if (block.refusal_ == Refusal::too_large) {
    return fail(ErrorCode::exhausted,
                "the block of {} exceeds the budget of {} on node {}{}; access smaller "
                "extents or resize() it",
                length, budget, raw(node), shard)
        .error();
  }
  return fail(ErrorCode::exhausted,
              "no space for {} on node {}{}: the rest of its budget of {} is held or in "
              "flight; let Blocks go or resize() it",
              length, raw(node), shard, budget)
      .error();
}

void CacheCore::invalidate(Extent extent) {
  if (!origin_.here()) return;
  if (extent.object == nullptr || extent.offset >= extent.object->size().value) return;
  const std::uint64_t length =
      std::min(extent.length.value, extent.object->size().value - extent.offset);
  if (length == 0) return;
  const Range range{extent.object->id(), extent.offset, length};
  for_blocks(range, [this](CacheEntry& entry, DeferredActions& deferred) {
    mutex_.assert_held();
    drop(entry, CacheEvent::Kind::invalidated, deferred);
  });
  if (take_pump_due()) pump(true);
}

// Calls `then` under the lock for all blocks that overlap `range`, with their pins counted. Works
// in slices, so that the lock is never held for long.
void CacheCore::for_blocks(const Range& range, const ForBlock& then) {
  for (RangeIndex<CacheEntry>::Cursor cursor; !cursor.ended;) {
    std::array<CacheEntry*, kSlice> found;
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    const auto entries = std::span(found).first(index_.next(range, cursor, found));
    count_pins(entries);
    for (CacheEntry* entry : entries) then(*entry, deferred);
    if (!entries.empty()) go_on(deferred);
  }
}

// Like above, for all blocks of a node. By address, so that dropped neighbours leave one gap.
void CacheCore::for_blocks(Node& node, const ForBlock& then) {
  Frames::Walk walk;
  for (bool more = true; more;) {
    std::array<CacheEntry*, kSlice> found;
    std::size_t count = 0;
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    for (std::size_t looks = 0; more && looks < kSlice; ++looks) {
      Frame* const frame = node.frames.next(walk);
      more = frame != nullptr;
      if (more && static_cast<CacheEntry*>(frame)->detached == 0) {
        found[count++] = static_cast<CacheEntry*>(frame);
      }
    }
    const auto entries = std::span(found).first(count);
    count_pins(entries);
    {
      const Frames::GivingMany many(node.frames);
      for (CacheEntry* entry : entries) then(*entry, deferred);
    }
    if (count > 0) go_on(deferred);
  }
}

Status CacheCore::forget(const Object& object, Nanoseconds timeout) {
  if (!origin_.here()) return {};  // no engine of this process reads it
  invalidate(whole(object));
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  for (;;) {
    const std::uint32_t seen = running_.load();
    {
      const MutexLock lock(mutex_);
      if (!being_read(object.id())) return {};
      if (mover_.in_callback()) return fail(ErrorCode::invalid, kInCallback, "forget()");
      ++watchers_;
    }
    mover_.poll();
    patience.sleep(running_, seen, kEndSlice);
    const MutexLock lock(mutex_);
    --watchers_;
    if (patience.over() && being_read(object.id())) {
      return fail(ErrorCode::timed_out, "an engine still reads the object; forget() it again");
    }
  }
}

std::vector<ObjectId> CacheCore::reading() const {
  std::vector<ObjectId> objects;
  if (!origin_.here()) return objects;
  const MutexLock lock(mutex_);
  for (const Fill* fill = fills_.front(); fill != nullptr; fill = fill->next) {
    objects.push_back(fill->object);
  }
  for (const auto& plan : plans_) {
    const auto planned = plan->reading();
    objects.insert(objects.end(), planned.begin(), planned.end());
  }
  std::ranges::sort(objects);
  const auto repeated = std::ranges::unique(objects);
  objects.erase(repeated.begin(), repeated.end());
  return objects;
}

void CacheCore::flush() {
  if (!origin_.here()) return;
  for (Node& node : nodes_) {
    for_blocks(node, [this](CacheEntry& entry, DeferredActions& deferred) {
      mutex_.assert_held();
      if (entry.pins == 0 && entry.planned == 0) {
        drop(entry, CacheEvent::Kind::evicted, deferred);
      } else if (entry.now() == BlockState::ready) {
        open(entry);
      }
    });
  }
  give_back_slabs();
  if (take_pump_due()) pump(true, kAllStarts);
}

void CacheCore::clear() {
  if (!origin_.here()) return;
  end_plans();
  drop_all();
  give_back_slabs();
  if (take_pump_due()) pump(true, kAllStarts);  // of plans made meanwhile
}

void CacheCore::drop_all() {
  for (Node& node : nodes_) drop_all(node);
}

void CacheCore::drop_all(Node& node) {
  for_blocks(node, [this](CacheEntry& entry, DeferredActions& deferred) {
    mutex_.assert_held();
    drop(entry, CacheEvent::Kind::evicted, deferred);
  });
}

Status CacheCore::resize(NodeId id, Bytes budget) {
  HEADRACE_TRY_STATUS(origin_.check(kTheCache));
  std::uint16_t number = 0;
  for (bool first = true, more = true; more; first = false) {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    const auto node = std::find_if(nodes_.begin(), nodes_.end(),
                                   [&](const Node& other) { return other.id == id; });
    if (node == nodes_.end()) {
      return fail(ErrorCode::absent,
                  "the cache has no budget for node {}; give one in CacheOptions::budgets",
                  raw(id));
    }
    number = static_cast<std::uint16_t>(node - nodes_.begin());
    if (first) {
      if (node->lost) return Unexpected(*node->grow_error);
      node->budget = budget.value;
      node->grow_error.reset();
      pump_due_ = true;
    }
    go_on(deferred);
    more = fit_budget(*node, deferred);
  }
  const Status reserved = options_.reserve ? reserve_all_of(number) : Status{};
  if (take_pump_due()) pump(true, kAllStarts);
  return reserved;
}

CacheStats CacheCore::stats(Histogram& wait_time, Histogram& copy_latency) const {
  CacheStats stats;
  if (!origin_.here()) return stats;
  {
    const MutexLock lock(mutex_);
    stats = {.hits = counts_.hits + readers_.hits(),
             .inflight_hits = counts_.inflight_hits,
             .misses = counts_.misses,
             .prefetched = counts_.prefetched,
             .first_uses = counts_.first_uses,
             .late = counts_.late,
             .wasted_bytes = {counts_.wasted_bytes},
             .evictions = counts_.evictions,
             .invalidations = counts_.invalidations,
             .failures = counts_.failures,
             .refusals = counts_.refusals,
             .bytes_pinned = {counts_.pinned_bytes + bytes_in_slots()},
             .blocks = index_.size()};
    for (const Node& node : nodes_) stats.bytes_used += Bytes{node.used};
  }
  wait_time.add(wait_time_);
  copy_latency.add(copy_latency_);
  return stats;
}

// Bytes of the blocks that only slots pin. Each block counts once.
std::uint64_t CacheCore::bytes_in_slots() const {
  std::vector<CacheEntry*> entries = readers_.pinned();
  std::ranges::sort(entries);
  const auto repeated = std::ranges::unique(entries);
  entries.erase(repeated.begin(), repeated.end());
  std::uint64_t bytes = 0;
  for (const CacheEntry* entry : entries) {
    if (entry->pins == 0 && entry->data != nullptr) bytes += entry->length;
  }
  return bytes;
}

void CacheCore::emit(CacheEvent::Kind kind, const Extent& extent, bool by_prefetch) noexcept {
  if (!options_.observer) return;
  options_.observer(
      {.kind = kind, .extent = extent, .time = mover_.clock().now(), .by_prefetch = by_prefetch});
}

std::optional<NodeId> CacheCore::calling_node() const {
  const int cpu = sched_getcpu();
  if (cpu < 0 || static_cast<std::size_t>(cpu) >= node_of_cpu_.size()) return std::nullopt;
  return node_of_cpu_[static_cast<std::size_t>(cpu)];
}

}  // namespace headrace
