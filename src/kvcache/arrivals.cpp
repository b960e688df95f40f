// SPDX-License-Identifier: Apache-2.0
#include "kvcache/arrivals.h"

#include <list>
#include <utility>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

// Bytes of blocks that are written from the user's memory at a time on each disk, though always two
// blocks. They fill the queue of a disk. Checksums of more would only take cores from loads.
constexpr std::uint64_t kWrittenAtOnce = 16 << 20;

}  // namespace

void StoredState::run() noexcept {
  const std::shared_ptr<StoredState> held = std::move(self);
  keep.reset();
  ending.report(core->mover.waiting(), word);
}

void Arrival::run() noexcept {
  if (!heard_late(state->core->jobs)) state->core->arrivals.start(*this);
}

void Arrival::copied(const Result<MoveStats>& outcome) noexcept {
  StoreCore& core = *state->core;
  if (std::exchange(gathering, false) && outcome) return core.jobs.enqueue(*this);
  // No other thread changes the slot of a copy that is filling.
  if (!outcome && writing && core.table.tier(0).folder->mend(entry->copies[0].slot) != mends) {
    writing = false;
    return core.jobs.enqueue(*this);  // the file was cut, and is long again
  }
  core.arrivals.stored(std::unique_ptr<Arrival>(this), outcome ? nullptr : &outcome.error());
}

Result<Stored> Arrivals::store(std::span<const Key> keys, std::span<const Extent> from,
                               const StoreRequest& request) {
  HEADRACE_TRY_STATUS(store_.origin.check(kTheStore));
  HEADRACE_TRY_STATUS(
      check_user(store_.geometry(), from, request.layout, keys.size(), request.positions));
  if (from.empty() || from.front().object == nullptr) return Stored();  // no blocks
  HEADRACE_TRY(auto point, store_.streams.point_of(from.front(), request.stream));
  auto state = std::make_shared<StoredState>();
  state->core = &store_;
  state->keep = request.keep;
  {
    const MutexLock lock(state->ending.mutex);
    state->left = keys.size() + 1;  // one for this call itself
  }
  std::list<Parked> parked;
  if (point != nullptr) {
    parked.emplace_back().point = std::move(point);
    parked.back().stored = state;
  }
  {
    Later later;
    BlockTable& table = store_.table;
    const TableLock lock(table);
    HEADRACE_TRY_STATUS(store_.check_open());
    std::size_t present = 0;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const UserBlock block = user_block(from, request.positions, i);
      const bool any_size = store_.geometry().any_size;
      const std::uint64_t bytes = any_size ? block.extent.length.value : table.block_bytes();
      if (Entry* const entry = table.find(keys[i])) {
        const auto what = meet(*entry, bytes, state);
        present += what == &StoredCounts::present ? 1 : 0;
        refused += what == &StoredCounts::refused ? 1 : 0;
        continue;
      }
      Arrival* const arrival = expect(keys[i], bytes, state);
      if (arrival == nullptr) {
        ++refused;
        continue;
      }
      arrival->from = block;
      arrival->layout = request.layout;
      arrival->priority = request.priority;
      parked.empty() ? wait_for_slots(*arrival) : parked.back().arrivals->push(*arrival);
    }
    table.counts().stores.present += present;
    table.counts().stores.refused += refused;
    count(*state, &StoredCounts::present, present, later);
    count(*state, &StoredCounts::refused, refused, later);
    place(later);
    count(*state, nullptr, 1, later);
    if (!parked.empty()) store_.jobs.begin_operation();
  }
  store_.streams.park(parked);
  return Stored(state);
}

bool Arrivals::ends_with_write() const {
  return store_.table.tiers() > 1 && store_.table.has_folder() &&
         store_.options.tiers.back().write == WriteBack::stored;
}

void Arrivals::wait_for_slots(Arrival& arrival) {
  waiting_.push(arrival);
  waiting_slots_ += store_.table.slots_of(arrival.entry->bytes);
}

bool Arrivals::gathers() const {
  if (waiting_.empty()) return false;
  return store_.table.slots_of(static_cast<const Arrival*>(waiting_.first())->entry->bytes) > 1;
}

bool Arrivals::too_much(std::uint64_t bytes) const {
  return in_flight_ > 0 && in_flight_ + bytes > store_.options.in_flight.value;
}

bool Arrivals::writes_enough() const {
  const Tier& first = store_.table.tier(0);
  return first.folder != nullptr && copying_ > 1 &&
         copying_bytes_ >= kWrittenAtOnce * first.folder->disks();
}

std::size_t StoredCounts::* Arrivals::meet(Entry& entry, std::uint64_t bytes,
                                           const std::shared_ptr<StoredState>& state) {
  BlockTable& table = store_.table;
  if (entry.removed || entry.bytes != bytes) return &StoredCounts::refused;
  table.use_again(entry);
  const Copy& last = entry.copies[table.tiers() - 1];
  const bool writes = ends_with_write();
  if (entry.storing || (writes && last.state == Copy::State::filling)) {
    try {
      followers_.emplace(entry.key, state);
      return nullptr;
    } catch (const std::bad_alloc&) {
      return &StoredCounts::refused;
    }
  }
  const auto tier = entry.fastest();
  if (!tier) return &StoredCounts::refused;
  if (!writes || last.served()) return &StoredCounts::present;
  // In memory, but not in the folder: its write failed, or no slot was free.
  Copy& copy = entry.copies[*tier];
  const bool can = copy.state == Copy::State::ready && last.state == Copy::State::none;
  if (!can || table.closing || too_much(bytes) || !store_.tiers.write(copy, *tier, state)) {
    return &StoredCounts::refused;
  }
  in_flight_ += bytes;
  return nullptr;
}

Arrival* Arrivals::expect(const Key& key, std::uint64_t bytes,
                          const std::shared_ptr<StoredState>& state) {
  if (store_.table.closing || too_much(bytes)) return nullptr;
  try {
    auto arrival = std::make_unique<Arrival>();
    Entry& entry = store_.table.make(key, bytes);
    entry.waiting = entry.storing = true;
    arrival->state = state;
    arrival->entry = &entry;
    arrival->side = arriving_.begin();
    in_flight_ += bytes;
    return arrival.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// While blocks leave or arrive, waiting blocks may find a slot: arrived blocks can leave. Otherwise
// no slot will become free.
void Arrivals::place(Later& later) {
  BlockTable& table = store_.table;
  const Tier& first = table.tier(0);
  JobList ready;
  while (!waiting_.empty()) {
    const auto* const next = static_cast<const Arrival*>(waiting_.first());
    const std::size_t count = table.slots_of(next->entry->bytes);
    const bool late = next->last_try && store_.mover.clock().now() >= *next->last_try;
    const bool ends = table.closing || late;
    if (!ends && writes_enough()) break;
    // A close still writes blocks to the folder that only waited for their turn.
    const bool takes = !ends || (first.folder != nullptr && !late);
    const auto slot =
        takes ? store_.tiers.take_slots(0, count, Tiers::Loss::allowed) : std::nullopt;
    if (!slot && !ends && count <= first.largest() &&
        first.leaving + first.writing + first.filling > first.unlisting) {
      break;
    }
    std::unique_ptr<Arrival> arrival(static_cast<Arrival*>(waiting_.pop()));
    waiting_slots_ -= count;
    if (!slot) {
      const auto what = late ? &StoredCounts::failed : &StoredCounts::refused;
      ++(table.counts().stores.*what);
      give_up(std::move(arrival), what, later);
      continue;
    }
    arrival->entry->waiting = false;
    table.fill(arrival->entry->copies[0], *arrival->entry, 0, *slot);
    store_.jobs.begin_operation();
    ++copying_;
    copying_bytes_ += arrival->entry->bytes;
    if (first.folder != nullptr) {  // checksums take time
      ready.push(*arrival.release());
    } else {
      later.add(*arrival.release());
    }
  }
  store_.jobs.enqueue(ready);
  if (table.closing) return;
  store_.tiers.evict_for(waiting_slots_);
}

void Arrivals::give_up(std::unique_ptr<Arrival> arrival, std::size_t StoredCounts::* what,
                       Later& later) {
  in_flight_ -= arrival->entry->bytes;
  arriving_.end(arrival->side);
  const Key key = arrival->entry->key;
  store_.table.entries().erase(key);
  count(*arrival->state, what, 1, later);
  count_followers(key, what, later);
  store_.flusher.progressed();  // a flush() that waits for this block checks again
}

void Arrivals::resume(JobList& arrivals, bool well, Later& later) {
  while (Job* const next = arrivals.pop()) {
    if (well) {
      wait_for_slots(static_cast<Arrival&>(*next));
      continue;
    }
    ++store_.table.counts().stores.failed;
    give_up(std::unique_ptr<Arrival>(static_cast<Arrival*>(next)), &StoredCounts::failed, later);
  }
  place(later);
}

void Arrivals::start(Arrival& arrival) noexcept {
  try {
    const bool to_folder = store_.table.tier(0).folder != nullptr;
    auto pairs = to_folder ? pairs_to_folder(arrival) : pairs_to_memory(arrival);
    if (!pairs) return stored(std::unique_ptr<Arrival>(&arrival), &pairs.error());
    arrival.hear(store_.jobs, store_.mover.copy(*pairs, {.priority = arrival.priority}));
  } catch (const std::bad_alloc&) {  // before the copy was made
    arrival.writing = arrival.gathering = false;
    stored(std::unique_ptr<Arrival>(&arrival), &kNoMemory);
  }
}

// No other thread changes the slots of a copy that is filling.
Result<std::vector<MovePair>> Arrivals::pairs_to_memory(const Arrival& arrival) {
  const Tier& tier = store_.table.tier(0);
  const std::uint32_t first = arrival.entry->copies[0].slot;
  std::vector<MovePair> pairs;
  if (store_.geometry().any_size) {
    tier.each_part(
        first, arrival.entry->bytes, [&](std::uint32_t slot, std::uint64_t at, Bytes bytes) {
          add_pair(pairs, {tier.in_slot(slot, 0, bytes), arrival.from.extent.part(at, bytes)});
        });
    return pairs;
  }
  const std::vector<Fragment> parts = parts_of(arrival);
  pairs.reserve(parts.size());
  for (const Fragment& part : parts) {
    pairs.push_back({.to = tier.in_slot(first, part.in_block, part.bytes), .from = part.user});
  }
  return pairs;
}

std::vector<Fragment> Arrivals::parts_of(const Arrival& arrival) const {
  const Geometry& geometry = store_.geometry();
  const UserBlock& from = arrival.from;
  if (geometry.any_size) {
    return {{.user = from.extent, .in_block = 0, .bytes = from.extent.length}};
  }
  std::vector<Fragment> parts;
  fragments(geometry, from.extent, arrival.layout, from.position, 0, geometry.layers, parts);
  return parts;
}

Result<std::vector<MovePair>> Arrivals::pairs_to_folder(Arrival& arrival) {
  const Tier& tier = store_.table.tier(0);
  const Entry& entry = *arrival.entry;
  std::vector<MovePair> pairs;
  const std::vector<Fragment> parts = parts_of(arrival);
  Extent block = parts.front().user;
  if (arrival.passage != nullptr) {
    block = whole(*arrival.passage);
  } else if (parts.size() > 1 || block.memory() == nullptr) {
    HEADRACE_TRY(arrival.passage, store_.passage(Bytes{entry.bytes}));
    const Extent passage = whole(*arrival.passage);
    for (const Fragment& part : parts) {
      pairs.push_back({.to = passage.part(part.in_block, part.bytes), .from = part.user});
    }
    arrival.gathering = true;
    return pairs;
  }
  std::vector<MovePair> headers;
  Folder::Part part{.block_bytes = entry.bytes, .sequence = tier.folder->next_sequence()};
  tier.each_part(entry.copies[0].slot, entry.bytes,
                 [&](std::uint32_t slot, std::uint64_t at, Bytes bytes) {
                   const Extent from = block.part(at, bytes);
                   tier.folder->describe(slot, entry.key, part, {from.memory(), bytes.value});
                   add_pair(pairs, {tier.in_slot(slot, 0, bytes), from});
                   add_pair(headers, tier.folder->header(slot));
                   ++part.number;
                 });
  pairs.insert(pairs.end(), headers.begin(), headers.end());
  arrival.writing = true;
  arrival.mends = tier.folder->mends(entry.copies[0].slot);
  return pairs;
}

// The user's memory is still there, so a block that its disk did not take may go to another slot.
bool Arrivals::place_again(Arrival& arrival, const Error& why) {
  BlockTable& table = store_.table;
  Entry& entry = *arrival.entry;
  Copy& copy = entry.copies[0];
  const Nanoseconds now = store_.mover.clock().now();
  const bool next = table.tier(0).disk_refused(copy.slot, why, now);
  if (!arrival.last_try) arrival.last_try = now + kTryDisks;
  if (!next || entry.removed || table.closing) return false;
  entry.waiting = true;
  table.drop(copy, 0, true);
  arrival.writing = false;
  wait_for_slots(arrival);
  return true;
}

void Arrivals::settle(std::unique_ptr<Arrival> arrival, const Error* why, Later& later) {
  BlockTable& table = store_.table;
  Copy& copy = arrival->entry->copies[0];
  const Key key = arrival->entry->key;
  const std::uint64_t bytes = arrival->entry->bytes;
  auto what = &StoredCounts::stored;
  bool writes = false;  // the store ends later, with the write
  --copying_;
  copying_bytes_ -= bytes;
  if (why != nullptr) table.note(*why);
  if (why != nullptr && arrival->writing && place_again(*arrival, *why)) {
    (void)arrival.release();
    return;
  }
  arrival->entry->storing = false;
  arriving_.end(arrival->side);
  if (arrival->writing && why == nullptr) table.tier(0).disk_has(copy.slot);
  if (why != nullptr) {
    what = &StoredCounts::failed;
    table.drop(copy, 0, arrival->writing);
  } else if (arrival->entry->removed) {
    table.ready(copy, 0);  // frees the entry
  } else {
    table.use(*arrival->entry);
    table.ready(copy, 0);
    store_.flusher.expect_idle(key);
    writes = ends_with_write() && store_.tiers.write(copy, 0, arrival->state);
    if (!writes && ends_with_write()) what = &StoredCounts::refused;
  }
  if (writes) return;
  arrived(*arrival->state, bytes, what, later);
  count_followers(key, what, later);
}

void Arrivals::stored(std::unique_ptr<Arrival> arrival, const Error* why) noexcept {
  {
    Later later;
    const TableLock lock(store_.table);
    settle(std::move(arrival), why, later);
    place(later);
  }
  store_.flusher.progressed();
  store_.jobs.end_operation();
}

void Arrivals::arrived(StoredState& state, std::uint64_t bytes, std::size_t StoredCounts::* what,
                       Later& later) {
  in_flight_ -= bytes;
  ++(store_.table.counts().stores.*what);
  count(state, what, 1, later);
}

void Arrivals::count_followers(const Key& key, std::size_t StoredCounts::* what, Later& later) {
  const auto [first, end] = followers_.equal_range(key);
  const auto as = what == &StoredCounts::stored ? &StoredCounts::present : what;
  for (auto each = first; each != end; ++each) {
    ++(store_.table.counts().stores.*as);
    count(*each->second, as, 1, later);
  }
  followers_.erase(first, end);
}

void Arrivals::count(StoredState& state, std::size_t StoredCounts::* what, std::size_t blocks,
                     Later& later) {
  const MutexLock lock(state.ending.mutex);
  if (what != nullptr) state.counts.*what += blocks;
  state.left -= blocks;
  if (blocks > 0 && state.left == 0) {
    state.self = state.shared_from_this();
    later.add(state);
  }
}

}  // namespace headrace::kvcache
