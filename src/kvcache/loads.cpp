// SPDX-License-Identifier: Apache-2.0
// Loads from their call to their end: what they pin, their deadlines and their order.
#include "kvcache/loads.h"

#include <algorithm>
#include <list>
#include <utility>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

void LoadGroup::run() noexcept {
  Loads& loads = load->core->loads;
  if (heard_late(load->core->jobs)) return;
  if (!started) return loads.start(*this);
  alone.load() ? loads.read_again(*this) : loads.verify(*this);
}

// Demand loads begin in order, including layers that are not urgent yet, which the Mover then lets
// others pass. Checksums are computed before those of other loads only if they are urgent.
Turn LoadGroup::turn() const {
  const bool urgent =
      priority() == Priority::demand || (!started && load->options.priority == Priority::demand);
  return urgent ? Turn::demand : Turn::load;
}

void LoadGroup::copied(const Result<MoveStats>& moved) noexcept {
  (load->core->loads.*then)(*this, moved.has_value());
}

Transfer LoadGroup::transfer() noexcept {
  const MutexLock lock(ending.mutex);
  return moving;
}

void LoadGroup::fail(const Error& error) noexcept {
  const MutexLock lock(ending.mutex);
  if (!outcome) return;
  try {
    outcome = Unexpected(error);
  } catch (const std::bad_alloc&) {
    outcome = Unexpected(kNoMemory);
  }
}

void LoadState::run() noexcept {
  const std::shared_ptr<LoadState> held = std::move(self);
  if (!begun) return core->loads.begin(*this);
  passage.reset();
  core->jobs.end_operation();
}

Turn LoadState::turn() const {
  if (begun) return Turn::other;
  return options.priority == Priority::demand ? Turn::demand : Turn::load;
}

void LoadState::close_sharing() noexcept {
  const MutexLock lock(sharing);
  over = true;
}

namespace {

// A load of more blocks is begun by a worker: slots for the blocks take time.
constexpr std::size_t kBegunByCaller = 256;
// The most blocks that get slots before other threads may take the lock of the table.
constexpr std::size_t kKeptAtOnce = 64;

Status check(const LoadOptions& options, unsigned layers) {
  if (!options.deadlines.empty() && options.deadlines.size() != layers) {
    return fail(ErrorCode::invalid, "{} deadlines for {} layers", options.deadlines.size(), layers);
  }
  for (std::size_t layer = 0; layer < options.deadlines.size(); ++layer) {
    if (options.deadlines[layer] >= Nanoseconds{0}) continue;
    return fail(ErrorCode::invalid, "the deadline of layer {} is before now; give 0 for at once",
                layer);
  }
  return {};
}

}  // namespace

std::shared_ptr<LoadState> Loads::prepare(std::size_t blocks, std::span<const Extent> into,
                                          const LoadOptions& options) const {
  const bool any_size = store_.geometry().any_size;
  std::size_t most = 0;
  for (const Extent& each : into) most = std::max(most, store_.table.slots_of(each.length.value));
  const unsigned layers = any_size ? static_cast<unsigned>(most) : store_.geometry().layers;
  auto state = std::make_shared<LoadState>();
  state->core = &store_;
  state->into = into.front();
  state->layers = store_.geometry().layers;
  state->options = options;
  state->asked = store_.mover.clock().now();
  state->items = std::vector<LoadItem>(blocks);
  state->numbers.resize(blocks);
  const bool by_layer = options.layer_order && !any_size;
  state->groups = std::vector<LoadGroup>(by_layer ? layers : 1);
  state->left = state->groups.size();
  state->leading = blocks;
  for (unsigned i = 0; i < state->groups.size(); ++i) {
    LoadGroup& group = state->groups[i];
    group.load = state.get();
    group.first = i;
    group.layers = by_layer ? 1 : layers;
    group.own.assign(blocks * group.layers, true);
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    LoadItem& item = state->items[i];
    item.user = user_block(into, options.positions, i);
    item.bytes = any_size ? item.user.extent.length.value : store_.table.block_bytes();
    item.parts = any_size ? static_cast<unsigned>(store_.table.slots_of(item.bytes)) : layers;
    if (!any_size || item.parts == 1) continue;
    item.more_slots.reserve(item.parts - 1);
    item.more_kept.reserve(item.parts - 1);
  }
  return state;
}

Result<Load> Loads::load(std::span<const Key> keys, std::span<const Extent> into,
                         const LoadOptions& options) {
  HEADRACE_TRY_STATUS(store_.origin.check(kTheStore));
  HEADRACE_TRY_STATUS(
      check_user(store_.geometry(), into, options.layout, keys.size(), options.positions));
  HEADRACE_TRY_STATUS(check(options, store_.geometry().layers));
  HEADRACE_TRY_STATUS(check_apart(into, options.positions));
  const Extent first = into.empty() ? Extent{} : into.front();
  if (first.object == nullptr) return Load();  // no blocks
  HEADRACE_TRY(auto point, store_.streams.point_of(first, options.stream));
  const std::shared_ptr<LoadState> state = prepare(keys.size(), into, options);
  std::list<Parked> parked;
  if (point != nullptr) {
    parked.emplace_back().point = std::move(point);
    parked.back().load = state;
  }
  Due due = due_of(state);
  const bool sleeps_too_long = !due.empty();
  {
    const MutexLock lock(mutex_);
    loads_.emplace(state.get(), state);  // before the pins: nothing throws after these
    due_.merge(due);
  }
  struct Forgets {  // also without memory
    Loads& loads;
    LoadState* load;
    ~Forgets() {
      if (load != nullptr) loads.forget(*load);
    }
  } unpinned{*this, state.get()};
  HEADRACE_TRY_STATUS(pin_all(keys, *state));
  unpinned.load = nullptr;
  if (sleeps_too_long) store_.jobs.wake();
  if (!parked.empty()) {
    store_.streams.park(parked);
  } else if (store_.options.workers > 0 && keys.size() > kBegunByCaller) {
    state->self = state;
    store_.jobs.enqueue(*state);
  } else {
    begin(*state);
  }
  return Load(state);
}

namespace {

// Lists the slots after the first. Requires: `more` has memory for them.
void list_slots(const Tier& tier, std::uint32_t first, std::vector<std::uint32_t>& more) noexcept {
  more.clear();
  for (std::uint32_t slot = tier.next_of(first); slot != kNoSlot; slot = tier.next_of(slot)) {
    more.push_back(slot);
  }
}

}  // namespace

Status Loads::pin_all(std::span<const Key> keys, LoadState& load) {
  BlockTable& table = store_.table;
  const TableLock lock(table);
  HEADRACE_TRY_STATUS(store_.check_open());
  std::size_t pinned = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Entry* const entry = table.find(keys[i]);
    const bool there = entry != nullptr && entry->bytes == load.items[i].bytes;
    const auto tier = there ? entry->fastest() : std::nullopt;
    if (!tier && load.options.skip_missing) {
      if (pinned == i) load.leading = i;
      continue;
    }
    if (!tier) {
      for (const LoadItem& item : std::span(load.items).first(pinned)) table.unpin(*item.entry);
      return fail(ErrorCode::absent,
                  "block {} of {} is not there{}; match() says which are, and holds them", i,
                  keys.size(), entry != nullptr && !there ? " with this size" : "");
    }
    load.numbers[pinned] = i;
    LoadItem& item = load.items[pinned];
    if (pinned < i) item.take_place_of(load.items[i]);
    ++pinned;
    item.load = &load;
    item.entry = entry;
    item.tier = *tier;
    item.slot = entry->copies[*tier].slot;
    list_slots(table.tier(*tier), item.slot, item.more_slots);
    table.pin(*entry);
  }
  while (load.items.size() > pinned) load.items.pop_back();
  load.numbers.resize(pinned);
  for (LoadItem& item : load.items) {
    Tier& tier = table.tier(item.tier);
    Copy& copy = item.entry->copies[item.tier];
    if (copy.state == Copy::State::ready) tier.order->touch(copy);
    item.since = table.use(*item.entry);
    ++tier.counts.hits;
    tier.counts.loaded += Bytes{item.bytes};
    for (LoadGroup& group : load.groups) group.bytes += item.bytes / load.groups.size();
  }
  for (std::size_t i = 0; i < load.groups.size(); ++i) store_.jobs.begin_operation();
  return {};
}

Due Loads::due_of(const std::shared_ptr<LoadState>& load) {
  const LoadOptions& options = load->options;
  Due due;
  for (unsigned i = 0; i < load->groups.size(); ++i) {
    LoadGroup& group = load->groups[i];
    group.until_wanted = options.priority;
    if (options.deadlines.empty()) continue;
    const auto all = std::span(options.deadlines);
    const Nanoseconds soonest =
        std::ranges::min(load->groups.size() == 1 ? all : all.subspan(group.first, group.layers));
    if (soonest <= kLead) {
      group.until_wanted = Priority::demand;
      continue;
    }
    group.until_wanted = std::max(options.priority, Priority::prefetch);
    group.due = due.emplace(load->asked + std::min(soonest, kLongestWait) - kLead,
                            std::pair(std::weak_ptr(load), i));
  }
  return due;
}

void Loads::keep(LoadState& load) noexcept {
  BlockTable& table = store_.table;
  const unsigned index = *table.for_cpus();
  for (std::size_t first = 0; first < load.items.size(); first += kKeptAtOnce) {
    const TableLock lock(table);
    if (index == 0 && store_.arrivals.gathers()) return;
    const std::size_t end = std::min(first + kKeptAtOnce, load.items.size());
    for (std::size_t i = first; i < end; ++i) {
      LoadItem& item = load.items[i];
      Copy& copy = item.entry->copies[index];
      if (!from_folder(item) || copy.state != Copy::State::none) continue;
      item.kept = store_.tiers.take_slots(index, table.slots_of(item.bytes), Tiers::Loss::never);
      if (!item.kept) return;  // the other blocks get none either
      table.fill(copy, *item.entry, index, *item.kept);
      list_slots(table.tier(index), *item.kept, item.more_kept);
      item.through = table.tier(index).in_slot(*item.kept, 0, Bytes{table.block_bytes()});
    }
  }
}

void Loads::take_passage(LoadState& load) noexcept {
  const auto needs = [&](const LoadItem& item) {
    return from_folder(item) && item.through.object == nullptr;
  };
  std::uint64_t slots = 0;
  for (const LoadItem& item : load.items) {
    if (needs(item)) slots += store_.table.slots_of(item.bytes);
  }
  if (slots == 0) return;
  Error why = kNoMemory;
  try {
    auto made = store_.passage(Bytes{slots * store_.table.slot_bytes()});
    if (made) {
      load.passage = std::move(*made);
    } else {
      why = std::move(made.error());
    }
  } catch (const std::bad_alloc&) {
  }
  for (unsigned i = 0; i < load.items.size(); ++i) {
    LoadItem& item = load.items[i];
    if (!needs(item)) continue;
    if (load.passage != nullptr) {
      item.in_passage = load.passing;
      load.passing += static_cast<std::uint32_t>(store_.table.slots_of(item.bytes));
      item.through = whole(*load.passage);
      continue;
    }
    for (LoadGroup& group : load.groups) fail_item(group, i, why, false);
  }
}

void Loads::begin(LoadState& load) noexcept {
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  load.begun = true;
  if (load.options.promote && store_.table.has_folder() && store_.table.for_cpus()) keep(load);
  if (load.into.memory() == nullptr) take_passage(load);
  if (load.has_turns()) {
    store_.queue.push(load);
    return start_next(store_.options.workers > 0, false);
  }
  // Cores copy inside start(): one layer after the other, and not in the thread of the caller.
  for (LoadGroup& group : load.groups)
    store_.options.workers > 0 ? store_.jobs.enqueue(group) : start(group);
}

void Loads::start_next(bool later, bool all) noexcept {
  while (LoadGroup* const group = store_.queue.next()) {
    store_.coalescer.join(*group);  // now, before bytes that were just read have been shared
    if (all && std::ranges::none_of(group->own, std::identity{}))
      store_.queue.give_back(*group, true);
    later ? store_.jobs.enqueue(*group) : start(*group);
  }
}

void Loads::give_up(LoadState& load, const Error& why) noexcept {
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  for (LoadGroup& group : load.groups) {
    for (unsigned i = 0; i < load.items.size(); ++i) fail_item(group, i, why, false);
    finish(group);
  }
}

void Loads::ended(LoadState& load, Later& later) {
  load.close_sharing();
  BlockTable& table = store_.table;
  {
    const TableLock lock(table);
    for (LoadItem& item : load.items) {
      Entry& entry = *item.entry;
      if (item.reads) {
        LoadItem** at = &entry.readers;
        while (*at != &item) at = &(*at)->next;
        *at = item.next;
      }
      if (item.kept) {
        const unsigned index = *table.for_cpus();
        if (item.failed.load()) {
          table.drop(entry.copies[index], index);
        } else {
          table.ready(entry.copies[index], index);
          ++table.tier(index).counts.arrived;
        }
      }
      if (load.options.promote && !item.failed.load()) store_.tiers.promote(entry, item.since);
      table.unpin(entry);
    }
    store_.arrivals.place(later);
  }
  forget(load);                   // after the pins: see none()
  if (load.passage != nullptr) {  // to unmap it takes time
    load.self = load.shared_from_this();
    store_.jobs.begin_operation();
    store_.jobs.enqueue(load);
  }
}

void Loads::forget(LoadState& load) {
  std::shared_ptr<LoadState> held = load.shared_from_this();  // released without the lock
  const MutexLock lock(mutex_);
  loads_.erase(&load);
  for (LoadGroup& group : load.groups) {
    if (group.due) due_.erase(*group.due);
    group.due.reset();
  }
}

bool Loads::none() {
  const MutexLock lock(mutex_);
  return loads_.empty();
}

std::shared_ptr<LoadState> Loads::one_not_cancelled() {
  const MutexLock lock(mutex_);
  const auto found =
      std::ranges::find_if(loads_, [](const auto& load) { return !load.second->cancelled.load(); });
  return found == loads_.end() ? nullptr : found->second;
}

void Loads::cancel_all() {
  while (const auto load = one_not_cancelled()) cancel(*load);
}

void Loads::cancel(LoadState& load) {
  if (!store_.origin.here()) return;
  load.cancelled = true;
  JobList again;
  std::size_t waiting = store_.queue.remove(load, again);
  while (Job* const group = again.pop()) store_.jobs.enqueue(*group);
  for (; waiting < load.groups.size(); ++waiting) {
    store_.jobs.enqueue(load.groups[waiting]);  // they end at once
  }
  store_.coalescer.unfollow(load);
  for (LoadGroup& group : load.groups) group.transfer().cancel();
}

Nanoseconds Loads::make_due_urgent() {
  for (;;) {
    std::shared_ptr<LoadState> load;
    unsigned index = 0;
    {
      const MutexLock lock(mutex_);
      if (due_.empty()) return Nanoseconds::max();
      const Nanoseconds left = due_.begin()->first - store_.mover.clock().now();
      if (left > Nanoseconds{0}) return left;
      load = due_.begin()->second.first.lock();
      index = due_.begin()->second.second;
      due_.erase(due_.begin());
      if (load != nullptr) load->groups[index].due.reset();
    }
    if (load != nullptr) make_urgent(load->groups[index]);
  }
}

void Loads::make_urgent(LoadGroup& group) {
  // Set before the looks, so that what is started or gets its turn later sees it.
  const bool first = !group.wanted.exchange(true);
  store_.jobs.hasten(*group.load);
  store_.jobs.hasten(group);
  group.transfer().promote(Priority::demand);
  if (first) store_.coalescer.make_readers_urgent(group);
}

}  // namespace headrace::kvcache
