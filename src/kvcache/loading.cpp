// SPDX-License-Identifier: Apache-2.0
// Loads. A group of a load (one layer, or all) is read, verified if it comes from a folder, and
// copied on if it passed through a slot of the first tier, which then keeps the block.
#include <algorithm>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

// One layer is read while another is verified.
constexpr unsigned kFewestReading = 2;
// The most layers of other loads that start before one of the oldest load.
constexpr unsigned kMostPassing = 7;
// While first layers of at least this part of the bytes read at a time are being read, higher
// layers wait. Nothing hides a first layer, and the device would give it only a share of its rate.
constexpr std::uint64_t kFirstPart = 8;

}  // namespace

void LoadGroup::run() noexcept {
  if (heard_late(*load->core)) return;
  if (!started) return load->core->start(*this);
  alone.load() ? load->core->read_again(*this) : load->core->verify(*this);
}

// Demand loads begin in order, including layers that are not urgent yet, which the Mover then lets
// others pass. Checksums are computed before those of other loads only if they are urgent.
Turn LoadGroup::turn() const {
  const bool urgent =
      priority() == Priority::demand || (!started && load->options.priority == Priority::demand);
  return urgent ? Turn::demand : Turn::load;
}

void LoadGroup::copied(const Result<MoveStats>& moved) noexcept {
  StoreCore& core = *load->core;
  const bool well = moved.has_value();
  (core.*then)(*this, well);
}

void LoadState::run() noexcept {
  const std::shared_ptr<LoadState> held = std::move(self);
  passage.reset();
  core->end_operation();
}

Result<Load> StoreCore::load(std::span<const Key> keys, const Extent& into,
                             const LoadOptions& options) {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  HEADRACE_TRY_STATUS(check_user(into, keys.size(), options.positions));
  std::vector<std::size_t> positions = options.positions;
  std::ranges::sort(positions);
  if (const auto twice = std::ranges::adjacent_find(positions); twice != positions.end()) {
    return fail(ErrorCode::invalid, "two blocks of a load go to position {}", *twice);
  }
  const unsigned layers = options_.geometry.layers;
  if (!options.deadlines.empty() && options.deadlines.size() != layers) {
    return fail(ErrorCode::invalid, "{} deadlines for {} layers", options.deadlines.size(), layers);
  }
  for (std::size_t layer = 0; layer < options.deadlines.size(); ++layer) {
    if (options.deadlines[layer] >= Nanoseconds{0}) continue;
    return fail(ErrorCode::invalid, "the deadline of layer {} is before now; give 0 for at once",
                layer);
  }
  HEADRACE_TRY(auto point, point_of(into, options.stream));
  auto state = std::make_shared<LoadState>();
  state->core = this;
  state->into = into;
  state->options = options;
  state->asked = mover_.clock().now();
  state->items = std::vector<LoadItem>(keys.size());
  state->groups = std::vector<LoadGroup>(options.layer_order ? layers : 1);
  state->left = state->groups.size();
  state->leading = keys.size();
  for (unsigned i = 0; i < state->groups.size(); ++i) {
    LoadGroup& group = state->groups[i];
    group.load = state.get();
    group.first = i;
    group.layers = options.layer_order ? 1 : layers;
    group.own.assign(keys.size() * group.layers, true);
  }
  std::list<Parked> parked;
  if (point != nullptr) {
    parked.emplace_back().point = std::move(point);
    parked.back().load = state;
  }
  Due due = due_of(state);
  const bool sleeps_too_long = !due.empty();
  {
    const MutexLock lock(mutex_);
    if (closing_) return fail(ErrorCode::cancelled, "the KV store is closed; open another");
    // Nothing throws from here on.
    loads_.emplace(state.get(), state);
    if (const auto missing = pin_all(keys, *state); missing < keys.size()) {
      loads_.erase(state.get());
      return fail(ErrorCode::absent,
                  "block {} of {} is not there; match() says which are, and holds them", missing,
                  keys.size());
    }
    for (std::size_t i = 0; i < state->groups.size(); ++i) begin_operation();
    due_.merge(due);
  }
  if (sleeps_too_long) {
    const MutexLock lock(jobs_mutex_);
    due_changed_ = true;
    jobs_there_.notify_one();
  }
  if (parked.empty()) {
    begin(*state);
  } else {
    park(parked);
  }
  return Load(state);
}

// Blocks from the folder pass through slots of their own, and stay there.
void StoreCore::keep(LoadState& load) {
  const Bytes block{block_};
  for (LoadItem& item : load.items) {
    Copy& copy = item.entry->copies[*for_cpus_];
    if (!from_folder(item) || copy.state != Copy::State::none) continue;
    item.kept = take_slot(*for_cpus_, Loss::never);
    if (!item.kept) continue;
    fill(copy, *item.entry, *for_cpus_, *item.kept);
    item.through = in_slot(tiers_[*for_cpus_], *item.kept, 0, block);
  }
}

void StoreCore::begin(LoadState& load) noexcept {
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  if (tiers_.back().folder != nullptr) {
    const MutexLock lock(mutex_);
    if (load.options.promote && for_cpus_) keep(load);
  }
  if (load.into.memory() == nullptr) take_passage(load);
  if (has_turns(load)) {
    {
      const MutexLock lock(turns_mutex_);
      in_line_.push(load);
    }
    return start_next(options_.worker, false);
  }
  // Cores copy inside start(): one layer after the other, and not in the thread of the caller.
  for (LoadGroup& group : load.groups) options_.worker ? enqueue(group) : start(group);
}

void StoreCore::start_next(bool later, bool all) noexcept {
  while (LoadGroup* const group = next_in_line()) {
    join(*group);  // now, before bytes that were just read have been shared
    if (all && std::ranges::none_of(group->own, std::identity{})) give_back(*group, true);
    later ? enqueue(*group) : start(*group);
  }
}

LoadGroup* StoreCore::next_in_line() noexcept {
  const MutexLock lock(turns_mutex_);
  const bool enough =
      reading_groups_ >= kFewestReading && reading_bytes_ >= options_.load_ahead.value;
  if (enough) return nullptr;
  if (Job* const again = again_.pop()) return &take_turn(static_cast<LoadGroup&>(*again));
  if (in_line_.empty()) return nullptr;
  auto* const oldest = static_cast<LoadState*>(in_line_.first());
  LoadState* chosen = oldest;
  for (Job* job = oldest->next; job != nullptr && passed_ < kMostPassing; job = job->next) {
    auto* const load = static_cast<LoadState*>(job);
    if (load->next_group < chosen->next_group) chosen = load;
  }
  const bool first = chosen->next_group == 0;
  if (!first && first_bytes_ > options_.load_ahead.value / kFirstPart && passed_ < kMostPassing) {
    return nullptr;
  }
  passed_ = chosen == oldest ? 0 : passed_ + 1;
  LoadGroup& group = chosen->groups[chosen->next_group++];
  if (chosen->next_group == chosen->groups.size()) in_line_.remove(*chosen);
  return &take_turn(group);
}

LoadGroup& StoreCore::take_turn(LoadGroup& group) noexcept {
  group.reading = true;
  ++reading_groups_;
  reading_bytes_ += bytes_of(group).value;
  if (group.first == 0) first_bytes_ += bytes_of(group).value;
  return group;
}

bool StoreCore::give_back(LoadGroup& group, bool unused) noexcept {
  const MutexLock lock(turns_mutex_);
  if (!std::exchange(group.reading, false)) return false;
  if (unused && passed_ > 0) --passed_;  // the device did nothing for it
  --reading_groups_;
  reading_bytes_ -= bytes_of(group).value;
  if (group.first == 0) first_bytes_ -= bytes_of(group).value;
  return true;
}

void StoreCore::read(LoadGroup& group) noexcept {
  if (give_back(group, false)) start_next(true);
}

Bytes StoreCore::bytes_of(const LoadGroup& group) const {
  return options_.geometry.fragment() * group.layers * group.load->items.size();
}

void StoreCore::give_up(LoadState& load, const Error& why) noexcept {
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  for (LoadGroup& group : load.groups) {
    for (unsigned i = 0; i < load.items.size(); ++i) fail_item(group, i, why, false);
    finish(group);
  }
}

void StoreCore::take_passage(LoadState& load) noexcept {
  const auto needs = [&](const LoadItem& item) {
    return from_folder(item) && item.through.object == nullptr;
  };
  const auto blocks = static_cast<std::uint64_t>(std::ranges::count_if(load.items, needs));
  if (blocks == 0) return;
  Error why = kNoMemory;
  try {
    auto made = allocate(mover_.machine(), Bytes{blocks * slot_}, passage_memory());
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
      item.in_passage = load.passing++;
      item.through = whole(*load.passage);
      continue;
    }
    for (LoadGroup& group : load.groups) fail_item(group, i, why, false);
  }
}

std::size_t StoreCore::pin_all(std::span<const Key> keys, LoadState& load) noexcept {
  std::size_t pinned = 0;
  for (; pinned < keys.size(); ++pinned) {
    const auto found = entries_.find(keys[pinned]);
    const auto tier = found == entries_.end() ? std::nullopt : found->second.fastest();
    if (!tier) break;
    LoadItem& item = load.items[pinned];
    item.load = &load;
    item.entry = &found->second;
    item.tier = *tier;
    item.slot = found->second.copies[*tier].slot;
    item.position = load.options.positions.empty() ? pinned : load.options.positions[pinned];
    pin(found->second);
  }
  for (std::size_t i = 0; i < pinned; ++i) {
    LoadItem& item = load.items[i];
    Tier& tier = tiers_[item.tier];
    if (pinned < keys.size()) {
      unpin(*item.entry);
      continue;
    }
    Copy& copy = item.entry->copies[item.tier];
    if (copy.state == Copy::State::ready) tier.order->touch(copy);
    item.since = use(*item.entry);
    ++tier.counts.hits;
    tier.counts.loaded += Bytes{block_};
  }
  return pinned;
}

Due StoreCore::due_of(const std::shared_ptr<LoadState>& load) const {
  const LoadOptions& options = load->options;
  Due due;
  for (unsigned i = 0; i < load->groups.size(); ++i) {
    LoadGroup& group = load->groups[i];
    group.until_wanted = options.priority;
    if (options.deadlines.empty()) continue;
    const Nanoseconds soonest = *std::min_element(&options.deadlines[group.first],
                                                  &options.deadlines[group.first] + group.layers);
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

void StoreCore::start(LoadGroup& group) noexcept {
  join(group);
  group.started = true;
  try {
    if (!group.load->cancelled.load()) return start_copies(group);
    give_up(group, {ErrorCode::cancelled, "the load was cancelled"}, true);
  } catch (const std::bad_alloc&) {  // before the copies were made
    give_up(group, kNoMemory, false);
  }
}

void StoreCore::give_up(LoadGroup& group, const Error& why, bool read) noexcept {
  for (unsigned i = 0; i < group.load->items.size(); ++i) fail_item(group, i, why, read);
  group.given_up = true;
  group.alone = false;
  take_late(group);
  settle(group);
  settle(group);
}

void StoreCore::start_copies(LoadGroup& group) {
  std::vector<MovePair> pairs;
  pairs.reserve(group.load->items.size());
  group.owners.reserve(group.load->items.size());
  plan_copies(group, pairs);
  const bool reads = !pairs.empty();
  if (reads) listen_to(group, pairs, &StoreCore::arrived);
  // Nothing throws from here on.
  take_late(group);
  if (!reads) {
    if (give_back(group, true)) start_next(true);  // so that it delays no other group
    settle(group);
  }
  settle(group);
}

void StoreCore::plan_copies(LoadGroup& group, std::vector<MovePair>& pairs) {
  group.owners.clear();
  for (unsigned i = 0; i < group.load->items.size(); ++i) {
    const LoadItem& item = group.load->items[i];
    if (from_folder(item) && item.failed.load()) continue;  // pass_on() reports it
    const unsigned end = group.first + group.layers;
    for (unsigned first = group.first; first < end;) {
      unsigned next = first;
      while (next < end && group.own[group.at(i, next)]) ++next;
      if (next > first) plan_copy(group, i, first, next - first, pairs);
      first = std::max(next, first + 1);
    }
  }
}

void StoreCore::plan_copy(LoadGroup& group, unsigned i, unsigned first, unsigned layers,
                          std::vector<MovePair>& pairs) {
  const LoadState& load = *group.load;
  const LoadItem& item = load.items[i];
  const Bytes fragment = options_.geometry.fragment();
  if (item.through.object != nullptr) {
    const Bytes bytes = fragment * layers;
    pairs.push_back({.to = passing(load, item, first, bytes),
                     .from = in_slot(tiers_[item.tier], item.slot, fragment.value * first, bytes)});
    group.owners.push_back(i);
    return;
  }
  std::vector<Fragment> parts;
  fragments(load.into, load.options.layout, item.position, first, layers, parts);
  for (const Fragment& part : parts) {
    pairs.push_back({.to = part.user,
                     .from = in_slot(tiers_[item.tier], item.slot, part.in_block, part.bytes)});
    group.owners.push_back(i);
  }
}

// Everything that may throw comes before the copies.
void StoreCore::listen_to(LoadGroup& group, std::span<const MovePair> pairs,
                          void (StoreCore::*then)(LoadGroup&, bool)) {
  group.then = then;
  const Transfer transfer = mover_.copy(pairs, {.priority = group.priority()});
  {
    const MutexLock lock(group.ending.mutex);
    group.moving = transfer;
  }
  if (group.wanted.load()) transfer.promote(Priority::demand);
  if (group.load->cancelled.load()) transfer.cancel();
  group.hear(*this, transfer);
}

Transfer StoreCore::moving(LoadGroup& group) noexcept {
  const MutexLock lock(group.ending.mutex);
  return group.moving;
}

// Marks the failed parts of a transfer.
void StoreCore::note_failures(LoadGroup& group, bool read) noexcept {
  const Transfer moved = moving(group);
  for (std::size_t i = 0; i < group.owners.size(); ++i) {
    try {
      const auto status = moved.poll(i);
      if (status && !*status) fail_item(group, group.owners[i], status->error(), read);
    } catch (const std::bad_alloc&) {  // copying the error
      fail_item(group, group.owners[i], kNoMemory, false);
    }
  }
}

void StoreCore::arrived(LoadGroup& group, bool well) noexcept {
  read(group);
  if (!well) note_failures(group, true);
  settle(group);
}

bool StoreCore::verified(const LoadGroup& group, const LoadItem& item, unsigned layer) const {
  const auto number = static_cast<unsigned>(&item - group.load->items.data());
  const Extent bytes = landing(*group.load, number, layer);
  return tiers_[item.tier].folder->fits(item.slot, item.entry->key, layer,
                                        {bytes.memory(), bytes.length.value});
}

void StoreCore::verify(LoadGroup& group) noexcept {
  share(group);
  try {
    pass_on(group);
  } catch (const std::bad_alloc&) {  // before any copy
    for (unsigned i = 0; i < group.load->items.size(); ++i) {
      if (from_folder(group.load->items[i])) fail_item(group, i, kNoMemory, false);
    }
    finish(group);
  }
}

void StoreCore::pass_on(LoadGroup& group) {
  LoadState& load = *group.load;
  bool other = false;
  group.owners.clear();
  std::vector<MovePair> pairs;
  std::vector<Fragment> parts;
  for (unsigned i = 0; i < load.items.size(); ++i) {
    LoadItem& item = load.items[i];
    if (!from_folder(item)) continue;
    if (item.failed.load()) {  // perhaps in another layer: not copied on in this one either
      fail_group(group, {load.cancelled.load() ? ErrorCode::cancelled : ErrorCode::io,
                         "a block failed in another layer; leading() says what is left"});
      continue;
    }
    for (unsigned layer = group.first; layer < group.first + group.layers; ++layer) {
      if (verified(group, item, layer)) continue;
      if (Follower* const taken = group.followed(i, layer)) {
        // The block on SSD may be right: a user may have overwritten the memory it came from.
        taken->delivered = false;
        other = true;
        break;
      }
      fail_item(group, i,
                Error{ErrorCode::io, "a block on SSD is not what was written there; dropped"},
                true);
      break;
    }
    if (item.through.object == nullptr || item.failed.load()) continue;
    parts.clear();
    fragments(load.into, load.options.layout, item.position, group.first, group.layers, parts);
    for (const Fragment& part : parts) {
      const auto layer = static_cast<unsigned>(part.in_block / options_.geometry.fragment().value);
      pairs.push_back({.to = part.user, .from = passing(load, item, layer, part.bytes)});
      group.owners.push_back(i);
    }
  }
  if (other) {
    group.rounds = kMostRounds;
    return read_again(group);
  }
  if (pairs.empty()) return finish(group);
  listen_to(group, pairs, &StoreCore::passed_on);
}

void StoreCore::passed_on(LoadGroup& group, bool well) noexcept {
  if (!well) note_failures(group, false);
  finish(group);
}

void StoreCore::fail_group(LoadGroup& group, const Error& error) noexcept {
  const MutexLock lock(group.ending.mutex);
  if (!group.outcome) return;
  try {
    group.outcome = Unexpected(error);
  } catch (const std::bad_alloc&) {
    group.outcome = Unexpected(kNoMemory);
  }
}

bool StoreCore::may_be_lost(const LoadGroup& group, const LoadItem& item) const {
  if (from_folder(item)) return true;
  const Object& source = tiers_[item.tier].object();
  return source.memory() == nullptr && source.node() != group.load->into.object->node();
}

void StoreCore::fail_item(LoadGroup& group, unsigned index, const Error& error,
                          bool read) noexcept {
  LoadItem& item = group.load->items[index];
  item.failed = true;
  std::size_t leading = group.load->leading.load();
  while (index < leading && !group.load->leading.compare_exchange_weak(leading, index)) {
  }
  fail_group(group, error);
  if (!read || error.code != ErrorCode::io || !may_be_lost(group, item)) return;
  const MutexLock lock(mutex_);
  Copy& copy = item.entry->copies[item.tier];
  note(error);
  if (copy.state != Copy::State::ready) return;
  tiers_[item.tier].order->remove(copy);
  copy.state = Copy::State::damaged;
  ++tiers_[item.tier].counts.dropped;
  ++counts_.damaged;
}

void StoreCore::finish(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  read(group);
  share(group);
  {
    Later later;  // starts stores that found a slot, after the last group is reported
    // The last group is reported after the blocks are unpinned.
    if (load.left.fetch_sub(1) == 1) {
      ended(load, later);
      load.options.keep.reset();
    }
    end(group.ending, load.word);
  }
  end_operation();
}

void StoreCore::ended(LoadState& load, Later& later) {
  leave(load);
  const MutexLock lock(mutex_);
  for (LoadItem& item : load.items) {
    Entry& entry = *item.entry;
    if (item.reads) {
      LoadItem** at = &entry.readers;
      while (*at != &item) at = &(*at)->next;
      *at = item.next;
    }
    if (item.kept && !item.failed.load()) {
      ready(entry.copies[*for_cpus_], *for_cpus_);
      ++tiers_[*for_cpus_].counts.arrived;
    } else if (item.kept) {
      drop(entry.copies[*for_cpus_], *for_cpus_);
    }
    if (load.options.promote && !item.failed.load()) rise(entry, item.since);
    unpin(entry);
  }
  loads_.erase(&load);
  for (LoadGroup& group : load.groups) {
    if (group.due) due_.erase(*group.due);
    group.due.reset();
  }
  if (load.passage != nullptr) {  // to unmap it takes time
    load.self = load.shared_from_this();
    begin_operation();
    enqueue(load);
  }
  place_pending(later);
}

void StoreCore::cancel(LoadState& load) {
  if (!origin_.here()) return;
  load.cancelled = true;
  std::size_t waiting = load.groups.size();
  JobList others;
  {
    const MutexLock lock(turns_mutex_);
    if (in_line_.remove(load)) waiting = std::exchange(load.next_group, waiting);
    for (LoadGroup& group : load.groups) {
      if (!again_.empty() && again_.remove(group)) others.push(group);
    }
  }
  while (Job* const group = others.pop()) enqueue(*group);
  for (; waiting < load.groups.size(); ++waiting)
    enqueue(load.groups[waiting]);  // they end at once
  unfollow(load);
  for (LoadGroup& group : load.groups) moving(group).cancel();
}

Nanoseconds StoreCore::promote_due() {
  for (;;) {
    std::shared_ptr<LoadState> load;
    unsigned index = 0;
    {
      const MutexLock lock(mutex_);
      if (due_.empty()) return Nanoseconds::max();
      const Nanoseconds left = due_.begin()->first - mover_.clock().now();
      if (left > Nanoseconds{0}) return left;
      load = due_.begin()->second.first.lock();
      index = due_.begin()->second.second;
      due_.erase(due_.begin());
      if (load != nullptr) load->groups[index].due.reset();
    }
    if (load != nullptr) promote(load->groups[index]);
  }
}

void StoreCore::promote(LoadGroup& group) {
  // Set before the looks, so that what is started or gets its turn later sees it.
  const bool first = !group.wanted.exchange(true);
  {
    const MutexLock lock(jobs_mutex_);
    if (group.queued && jobs_of(Turn::load).remove(group)) jobs_of(Turn::demand).push(group);
  }
  moving(group).promote(Priority::demand);
  if (first) promote_leaders(group);
}

}  // namespace headrace::kvcache
