// SPDX-License-Identifier: Apache-2.0
#include "kvcache/arrivals.h"

#include <list>
#include <utility>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

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
    JobList& arrivals = parked.empty() ? waiting_ : *parked.back().arrivals;
    std::size_t present = 0;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (Entry* const entry = table.find(keys[i])) {
        const auto what = meet(*entry, state);
        present += what == &StoredCounts::present ? 1 : 0;
        refused += what == &StoredCounts::refused ? 1 : 0;
        continue;
      }
      Arrival* const arrival = expect(keys[i], state);
      if (arrival == nullptr) {
        ++refused;
        continue;
      }
      arrival->from = user_block(from, request.positions, i);
      arrival->layout = request.layout;
      arrival->priority = request.priority;
      arrivals.push(*arrival);
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

bool Arrivals::too_much() const {
  return in_flight_ > 0 && in_flight_ + store_.table.block_bytes() > store_.options.in_flight.value;
}

std::size_t StoredCounts::* Arrivals::meet(Entry& entry,
                                           const std::shared_ptr<StoredState>& state) {
  BlockTable& table = store_.table;
  if (entry.removed) return &StoredCounts::refused;
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
  if (!can || table.closing || too_much() || !store_.tiers.write(copy, *tier, state)) {
    return &StoredCounts::refused;
  }
  in_flight_ += table.block_bytes();
  return nullptr;
}

Arrival* Arrivals::expect(const Key& key, const std::shared_ptr<StoredState>& state) {
  if (store_.table.closing || too_much()) return nullptr;
  try {
    auto arrival = std::make_unique<Arrival>();
    Entry& entry = store_.table.make(key);
    entry.waiting = entry.storing = true;
    arrival->state = state;
    arrival->entry = &entry;
    arrival->side = arriving_.begin();
    in_flight_ += store_.table.block_bytes();
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
    const auto slot =
        table.closing ? std::nullopt : store_.tiers.take_slot(0, Tiers::Loss::allowed);
    if (!slot && !table.closing && first.leaving + first.writing + first.filling > 0) {
      break;
    }
    std::unique_ptr<Arrival> arrival(static_cast<Arrival*>(waiting_.pop()));
    if (!slot) {
      ++table.counts().stores.refused;
      give_up(std::move(arrival), &StoredCounts::refused, later);
      continue;
    }
    arrival->entry->waiting = false;
    table.fill(arrival->entry->copies[0], *arrival->entry, 0, *slot);
    store_.jobs.begin_operation();
    if (first.folder != nullptr) {  // checksums take time
      ready.push(*arrival.release());
    } else {
      later.add(*arrival.release());
    }
  }
  store_.jobs.enqueue(ready);
  if (table.closing) return;
  store_.tiers.evict_for(waiting_.size());
}

void Arrivals::give_up(std::unique_ptr<Arrival> arrival, std::size_t StoredCounts::* what,
                       Later& later) {
  in_flight_ -= store_.table.block_bytes();
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
      waiting_.push(*next);
      continue;
    }
    ++store_.table.counts().stores.failed;
    give_up(std::unique_ptr<Arrival>(static_cast<Arrival*>(next)), &StoredCounts::failed, later);
  }
  place(later);
}

void Arrivals::start(Arrival& arrival) noexcept {
  try {
    const Geometry& geometry = store_.geometry();
    std::vector<Fragment> parts;
    fragments(geometry, arrival.from.extent, arrival.layout, arrival.from.position, 0,
              geometry.layers, parts);
    const Tier& first = store_.table.tier(0);
    std::vector<MovePair> pairs;
    if (first.folder != nullptr) {
      auto made = pairs_to_folder(arrival, parts);
      if (!made) return stored(std::unique_ptr<Arrival>(&arrival), &made.error());
      pairs = std::move(*made);
    } else {
      pairs.reserve(parts.size());
      // No other thread changes the slot of a copy that is filling.
      const std::uint32_t slot = arrival.entry->copies[0].slot;
      for (const Fragment& part : parts) {
        pairs.push_back({.to = first.in_slot(slot, part.in_block, part.bytes), .from = part.user});
      }
    }
    arrival.hear(store_.jobs, store_.mover.copy(pairs, {.priority = arrival.priority}));
  } catch (const std::bad_alloc&) {  // before the copy was made
    arrival.writing = arrival.gathering = false;
    stored(std::unique_ptr<Arrival>(&arrival), &kNoMemory);
  }
}

Result<std::vector<MovePair>> Arrivals::pairs_to_folder(Arrival& arrival,
                                                        std::span<const Fragment> parts) {
  const Tier& tier = store_.table.tier(0);
  const Bytes length{store_.table.block_bytes()};
  std::vector<MovePair> pairs;
  Extent block = parts.front().user;
  if (arrival.passage != nullptr) {
    block = whole(*arrival.passage);
  } else if (parts.size() > 1 || block.memory() == nullptr) {
    HEADRACE_TRY(arrival.passage,
                 allocate(store_.mover.machine(), length, store_.passage_memory()));
    const Extent passage = whole(*arrival.passage);
    for (const Fragment& part : parts) {
      pairs.push_back({.to = passage.part(part.in_block, part.bytes), .from = part.user});
    }
    arrival.gathering = true;
    return pairs;
  }
  const std::uint32_t slot = arrival.entry->copies[0].slot;
  tier.folder->describe(slot, arrival.entry->key, {block.memory(), length.value});
  pairs = {{.to = tier.in_slot(slot, 0, length), .from = block.part(0, length)},
           tier.folder->header(slot)};
  arrival.writing = true;
  arrival.mends = tier.folder->mends(slot);
  return pairs;
}

// The user's memory is still there, so a block that its disk did not take may go to another slot.
bool Arrivals::place_again(Arrival& arrival, const Error& why) {
  BlockTable& table = store_.table;
  Entry& entry = *arrival.entry;
  Copy& copy = entry.copies[0];
  const Nanoseconds now = store_.mover.clock().now();
  const bool next = table.tier(0).disk_refused(copy.slot, why, now);
  if (!next || entry.removed || table.closing) return false;
  entry.waiting = true;
  table.drop(copy, 0, true);
  arrival.writing = false;
  waiting_.push(arrival);
  return true;
}

void Arrivals::settle(std::unique_ptr<Arrival> arrival, const Error* why, Later& later) {
  BlockTable& table = store_.table;
  Copy& copy = arrival->entry->copies[0];
  const Key key = arrival->entry->key;
  auto what = &StoredCounts::stored;
  bool writes = false;  // the store ends later, with the write
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
  arrived(*arrival->state, what, later);
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

void Arrivals::arrived(StoredState& state, std::size_t StoredCounts::* what, Later& later) {
  in_flight_ -= store_.table.block_bytes();
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
