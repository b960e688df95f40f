// SPDX-License-Identifier: Apache-2.0
// Stores.
#include <algorithm>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

void StoredState::run() noexcept {
  const std::shared_ptr<StoredState> held = std::move(self);
  keep.reset();
  core->end(ending, word);
}

void Arrival::run() noexcept {
  if (!heard_late(*state->core)) state->core->start(*this);
}

void Arrival::copied(const Result<MoveStats>& outcome) noexcept {
  state->core->stored(std::unique_ptr<Arrival>(this), outcome ? nullptr : &outcome.error());
}

Result<Stored> StoreCore::store(std::span<const Key> keys, const Extent& from,
                                const StoreRequest& request) {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  HEADRACE_TRY_STATUS(check_user(from, keys.size(), request.positions));
  HEADRACE_TRY(auto point, point_of(from, request.stream));
  auto state = std::make_shared<StoredState>();
  state->core = this;
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
    const MutexLock lock(mutex_);
    if (closing_) return fail(ErrorCode::cancelled, "the KV store is closed; open another");
    JobList& arrivals = parked.empty() ? pending_ : *parked.back().arrivals;
    std::size_t present = 0;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = entries_.find(keys[i]);
      if (found != entries_.end()) {
        ++(touch(found->second) ? present : refused);
        continue;
      }
      Arrival* const arrival = expect(keys[i], state);
      if (arrival == nullptr) {
        ++refused;
        continue;
      }
      arrival->from = from;
      arrival->layout = request.layout;
      arrival->position = request.positions.empty() ? i : request.positions[i];
      arrival->priority = request.priority;
      arrivals.push(*arrival);
    }
    counts_.stores.present += present;
    counts_.stores.refused += refused;
    count(*state, &StoredCounts::present, present, later);
    count(*state, &StoredCounts::refused, refused, later);
    place_pending(later);
    count(*state, nullptr, 1, later);
    if (!parked.empty()) begin_operation();
  }
  park(parked);
  return Stored(state);
}

// Whether it is there or arriving. If not, it is damaged or removed, and pinned by a match or load.
bool StoreCore::touch(Entry& entry) {
  if (entry.removed) return false;  // its old bytes are leaving
  use(entry);
  const auto tier = entry.fastest();
  if (tier && entry.copies[*tier].state == Copy::State::ready) {
    tiers_[*tier].order->touch(entry.copies[*tier]);
  }
  return tier || entry.waiting || std::ranges::any_of(entry.copies, [](const Copy& copy) {
           return copy.state == Copy::State::filling;
         });
}

Arrival* StoreCore::expect(const Key& key, const std::shared_ptr<StoredState>& state) {
  if (closing_ || (in_flight_ > 0 && in_flight_ + block_ > options_.in_flight.value)) {
    return nullptr;
  }
  try {
    auto arrival = std::make_unique<Arrival>();
    Entry& entry = entries_[key];
    entry.key = key;
    entry.waiting = true;
    arrival->state = state;
    arrival->entry = &entry;
    in_flight_ += block_;
    return arrival.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// While blocks leave or arrive, waiting blocks may find a slot: arrived blocks can leave. Otherwise
// no slot will become free.
void StoreCore::place_pending(Later& later) {
  while (!pending_.empty()) {
    const auto slot = closing_ ? std::nullopt : take_slot(0, Loss::allowed);
    if (!slot && !closing_ && tiers_[0].leaving + tiers_[0].filling > 0) break;
    std::unique_ptr<Arrival> arrival(static_cast<Arrival*>(pending_.pop()));
    if (!slot) {
      ++counts_.stores.refused;
      drop_pending(std::move(arrival), &StoredCounts::refused, later);
      continue;
    }
    arrival->entry->waiting = false;
    fill(arrival->entry->copies[0], *arrival->entry, 0, *slot);
    begin_operation();
    later.add(*arrival.release());
  }
  if (closing_) return;
  make_room(0, pending_.size(), Loss::allowed);
  make_room(0, pending_.size() + reserve_of(0), Loss::never);
  for (unsigned tier = 1; tier + 1 < tiers_.size(); ++tier) {
    make_room(tier, reserve_of(tier), Loss::never);
  }
}

void StoreCore::drop_pending(std::unique_ptr<Arrival> arrival, std::size_t StoredCounts::* what,
                             Later& later) {
  in_flight_ -= block_;
  entries_.erase(Key{arrival->entry->key});
  count(*arrival->state, what, 1, later);
  transits_ended_.fetch_add(1);  // a flush() that waits for this block checks again
}

void StoreCore::start(Arrival& arrival) noexcept {
  try {
    std::vector<Fragment> parts;
    fragments(arrival.from, arrival.layout, arrival.position, 0, options_.geometry.layers, parts);
    std::vector<MovePair> pairs;
    pairs.reserve(parts.size());
    // No other thread changes the slot of a copy that is filling.
    const std::uint32_t slot = arrival.entry->copies[0].slot;
    for (const Fragment& part : parts) {
      pairs.push_back(
          {.to = in_slot(tiers_[0], slot, part.in_block, part.bytes), .from = part.user});
    }
    arrival.hear(*this, mover_.copy(pairs, {.priority = arrival.priority}));
  } catch (const std::bad_alloc&) {  // before the copy was made
    stored(std::unique_ptr<Arrival>(&arrival), &kNoMemory);
  }
}

void StoreCore::stored(std::unique_ptr<Arrival> arrival, const Error* why) noexcept {
  {
    Later later;
    const MutexLock lock(mutex_);
    in_flight_ -= block_;
    Copy& copy = arrival->entry->copies[0];
    if (why == nullptr) {
      use(*arrival->entry);
      ready(copy, 0);  // the entry may be freed
      ++counts_.stores.stored;
    } else {
      note(*why);
      ++counts_.stores.failed;
      drop(copy, 0);
    }
    count(*arrival->state, why == nullptr ? &StoredCounts::stored : &StoredCounts::failed, 1,
          later);
    place_pending(later);
  }
  transits_ended_.fetch_add(1);
  mover_.waiting().wake_all(transits_ended_);
  end_operation();
}

void StoreCore::count(StoredState& state, std::size_t StoredCounts::* what, std::size_t blocks,
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
