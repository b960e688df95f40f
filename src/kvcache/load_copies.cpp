// SPDX-License-Identifier: Apache-2.0
// The copies of a load: a group is read, verified, and passed on to the user.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

const Error kNotWritten{ErrorCode::io, "a block on SSD is not what was written there; dropped"};

// The bytes of a layer or part.
Bytes bytes_of(const StoreCore& store, const LoadItem& item, unsigned layer) {
  const Bytes fragment = store.geometry().fragment();
  return std::min(fragment, Bytes{item.bytes} - fragment * layer);
}

// Where a layer or part is in its tier.
Extent stored(const StoreCore& store, const LoadItem& item, unsigned layer) {
  const bool any_size = store.geometry().any_size;
  const std::uint64_t at = any_size ? 0 : layer * store.geometry().fragment().value;
  const Tier& tier = store.table.tier(item.tier);
  return tier.in_slot(item.slot_of(layer), at, bytes_of(store, item, layer));
}

// Appends a pair of the item, which may join the one before.
void add_copy(LoadGroup& group, unsigned item, const MovePair& pair, std::vector<MovePair>& pairs) {
  const bool first = group.owners.empty() || group.owners.back() != item;
  first ? pairs.push_back(pair) : add_pair(pairs, pair);
  if (group.owners.size() < pairs.size()) group.owners.push_back(item);
}

bool verified(StoreCore& store, LoadGroup& group, const LoadItem& item, unsigned layer) {
  const auto number = static_cast<unsigned>(&item - group.load->items.data());
  const Extent bytes = store.loads.landing(*group.load, number, layer);
  const Folders& folder = *store.table.tier(item.tier).folder;
  // A user may have overwritten the memory of another load, from which bytes came.
  const bool own = group.own[group.at(number, layer)] && group.rounds == 0;
  const std::uint32_t slot = item.slot_of(layer);
  if (own && folder.trusts(slot, item.entry->key)) return true;
  return folder.fits(slot, item.entry->key, layer, {bytes.memory(), bytes.length.value});
}

// Compares what was read from folders with its checksums. Fails blocks, or leaves doubts about
// them: a user may have overwritten the bytes. Returns true if a layer from another load does not
// fit, and must be read.
bool find_doubts(StoreCore& store, LoadGroup& group) {
  LoadState& load = *group.load;
  bool other = false;
  group.doubts.clear();
  for (unsigned i = 0; i < load.items.size(); ++i) {
    LoadItem& item = load.items[i];
    if (!store.loads.from_folder(item) || item.failed.load()) continue;
    for (unsigned layer = group.first; layer < group.end_of(item); ++layer) {
      if (verified(store, group, item, layer)) continue;
      if (Follower* const taken = group.followed(i, layer)) {
        // The block on SSD may be right: a user may have overwritten the memory it came from.
        taken->delivered = false;
        other = true;
        break;
      }
      if (item.through.object == nullptr) {
        group.doubts.push_back({i, layer});
        continue;
      }
      store.loads.fail_item(group, i, kNotWritten, true, true);
      break;
    }
  }
  return other;
}

// Copies to the user the layers that fit after all, and fails the others.
void decide(StoreCore& store, LoadGroup& group) noexcept {
  const std::uint64_t fragment = store.geometry().fragment().value;
  const std::byte* bytes = group.apart->memory();
  for (const auto& [i, layer] : group.doubts) {
    const LoadItem& item = group.load->items[i];
    const Folders& folder = *store.table.tier(item.tier).folder;
    const Extent to = store.loads.landing(*group.load, i, layer);
    const std::span read(std::exchange(bytes, bytes + fragment), to.length.value);
    if (item.failed.load()) continue;
    if (folder.fits(item.slot_of(layer), item.entry->key, layer, read)) {
      std::memcpy(to.memory(), read.data(), read.size());
    } else {
      store.loads.fail_item(group, i, kNotWritten, true, true);
    }
  }
  group.decided = true;
  group.apart.reset();
}

}  // namespace

void Loads::start(LoadGroup& group) noexcept {
  store_.coalescer.join(group);
  group.started = true;
  try {
    if (!group.load->cancelled.load()) return start_copies(group);
    give_up(group, {ErrorCode::cancelled, "the load was cancelled"}, true);
  } catch (const std::bad_alloc&) {  // before the copies were made
    give_up(group, kNoMemory, false);
  }
}

void Loads::give_up(LoadGroup& group, const Error& why, bool read) noexcept {
  for (unsigned i = 0; i < group.load->items.size(); ++i) fail_item(group, i, why, read);
  group.given_up = true;
  group.alone = false;
  store_.coalescer.take_late(group);
  settle(group);
  settle(group);
}

void Loads::start_copies(LoadGroup& group) {
  std::vector<MovePair> pairs;
  pairs.reserve(group.load->items.size());
  group.owners.reserve(group.load->items.size());
  plan_copies(group, pairs);
  const bool reads = !pairs.empty();
  if (reads) listen_to(group, pairs, &Loads::arrived);
  // Nothing throws from here on.
  store_.coalescer.take_late(group);
  if (!reads) {
    if (store_.queue.give_back(group, true)) start_next(true);  // so that it delays no other group
    settle(group);
  }
  settle(group);
}

void Loads::plan_copies(LoadGroup& group, std::vector<MovePair>& pairs) const {
  group.owners.clear();
  for (unsigned i = 0; i < group.load->items.size(); ++i) {
    const LoadItem& item = group.load->items[i];
    if (from_folder(item) && item.failed.load()) continue;  // pass_on() reports it
    const unsigned end = group.end_of(item);
    for (unsigned first = group.first; first < end;) {
      unsigned next = first;
      while (next < end && group.own[group.at(i, next)]) ++next;
      if (next > first) plan_copy(group, i, first, next - first, pairs);
      first = std::max(next, first + 1);
    }
  }
}

void Loads::plan_copy(LoadGroup& group, unsigned i, unsigned first, unsigned layers,
                      std::vector<MovePair>& pairs) const {
  const LoadState& load = *group.load;
  const LoadItem& item = load.items[i];
  const Bytes fragment = store_.geometry().fragment();
  if (store_.geometry().any_size) {
    for (unsigned part = first; part < first + layers; ++part) {
      add_copy(group, i, {landing(load, i, part), stored(store_, item, part)}, pairs);
    }
    return;
  }
  if (item.through.object != nullptr) {
    const Bytes bytes = fragment * layers;
    pairs.push_back(
        {.to = passing(load, item, first, bytes),
         .from = store_.table.tier(item.tier).in_slot(item.slot, fragment.value * first, bytes)});
    group.owners.push_back(i);
    return;
  }
  std::vector<Fragment> parts;
  fragments(store_.geometry(), item.user.extent, load.options.layout, item.user.position, first,
            layers, parts);
  for (const Fragment& part : parts) {
    pairs.push_back(
        {.to = part.user,
         .from = store_.table.tier(item.tier).in_slot(item.slot, part.in_block, part.bytes)});
    group.owners.push_back(i);
  }
}

Extent Loads::passing(const LoadState& load, const LoadItem& item, unsigned layer,
                      Bytes bytes) const noexcept {
  const std::uint64_t fragment = store_.geometry().fragment().value;
  const bool any_size = store_.geometry().any_size;
  if (item.through.object != load.passage.get()) {
    if (!any_size || layer == 0) return item.through.part(layer * fragment, bytes);
    return store_.table.tier(*store_.table.for_cpus()).in_slot(item.more_kept[layer - 1], 0, bytes);
  }
  if (any_size) {
    return item.through.part((item.in_passage + layer) * store_.table.slot_bytes(), bytes);
  }
  // Devices need the same offset within a page on both sides.
  const bool by_layer = load.groups.size() > 1 && fragment % 4096 == 0;
  const std::uint64_t at = by_layer
                               ? (std::uint64_t{layer} * load.passing + item.in_passage) * fragment
                               : item.in_passage * store_.table.slot_bytes() + layer * fragment;
  return item.through.part(at, bytes);
}

Extent Loads::landing(const LoadState& load, unsigned number, unsigned layer) const noexcept {
  const LoadItem& item = load.items[number];
  const Bytes bytes = bytes_of(store_, item, layer);
  if (item.through.object != nullptr) return passing(load, item, layer, bytes);
  const std::uint64_t at = offset_in(item.user.extent, store_.geometry(), load.options.layout,
                                     item.user.position, layer);
  return item.user.extent.part(at, bytes);
}

// Everything that may throw comes before the copies.
void Loads::listen_to(LoadGroup& group, std::span<const MovePair> pairs,
                      void (Loads::*then)(LoadGroup&, bool)) {
  group.then = then;
  const Transfer transfer = store_.mover.copy(pairs, {.priority = group.priority()});
  {
    const MutexLock lock(group.ending.mutex);
    group.moving = transfer;
  }
  if (group.wanted.load()) transfer.promote(Priority::demand);
  if (group.load->cancelled.load()) transfer.cancel();
  group.hear(store_.jobs, transfer);
}

void Loads::arrived(LoadGroup& group, bool well) noexcept {
  read(group);
  if (!well) note_failures(group, true);
  settle(group);
}

bool Loads::from_folder(const LoadItem& item) const {
  return store_.table.tier(item.tier).folder != nullptr;
}

void Loads::read(LoadGroup& group) noexcept {
  if (store_.queue.give_back(group, false)) start_next(true);
}

void Loads::settle(LoadGroup& group) noexcept {
  if (group.pending.fetch_sub(1) != 1) return;
  if (group.given_up) return finish(group);
  if (group.alone.load() || std::ranges::any_of(group.load->items, [&](const LoadItem& item) {
        return from_folder(item);
      })) {
    store_.jobs.enqueue(group);
  } else {
    finish(group);
  }
}

void Loads::read_again(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  store_.coalescer.share(group);  // its own bytes, before it waits for others
  store_.coalescer.reset(group);
  ++group.rounds;
  group.pending = 2;
  group.alone = group.joined = group.started = false;
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  const bool in_line = load.has_turns() && store_.queue.push_again(group);
  in_line ? start_next(true) : start(group);
}

void Loads::verify(LoadGroup& group) noexcept {
  group.apart != nullptr ? decide(store_, group) : store_.coalescer.share(group);
  try {
    if (!group.decided) {
      if (find_doubts(store_, group)) {
        group.rounds = kMostRounds;
        return read_again(group);
      }
      if (!group.doubts.empty()) return read_apart(group);
    }
    pass_on(group);
  } catch (const std::bad_alloc&) {  // before any copy
    for (unsigned i = 0; i < group.load->items.size(); ++i) {
      if (from_folder(group.load->items[i])) fail_item(group, i, kNoMemory, false);
    }
    finish(group);
  }
}

void Loads::read_apart(LoadGroup& group) {
  const LoadState& load = *group.load;
  const Bytes fragment = store_.geometry().fragment();
  std::vector<MovePair> pairs;
  pairs.reserve(group.doubts.size());
  group.owners.clear();
  auto made = store_.passage(fragment * group.doubts.size());
  if (!made) {
    for (const auto& doubt : group.doubts) fail_item(group, doubt.item, made.error(), false);
    return pass_on(group);
  }
  group.owners.reserve(group.doubts.size());
  for (const auto& doubt : group.doubts) {
    const LoadItem& item = load.items[doubt.item];
    const Extent from = stored(store_, item, doubt.layer);
    pairs.push_back(
        {.to = {made->get(), pairs.size() * fragment.value, from.length}, .from = from});
    group.owners.push_back(doubt.item);
  }
  group.apart = std::move(*made);
  listen_to(group, pairs, &Loads::was_read_apart);
}

void Loads::was_read_apart(LoadGroup& group, bool well) noexcept {
  if (!well) note_failures(group, true);
  store_.jobs.enqueue(group);
}

void Loads::pass_on(LoadGroup& group) {
  LoadState& load = *group.load;
  group.owners.clear();
  std::vector<MovePair> pairs;
  std::vector<Fragment> parts;
  for (unsigned i = 0; i < load.items.size(); ++i) {
    const LoadItem& item = load.items[i];
    if (!from_folder(item)) continue;
    if (item.failed.load()) {  // perhaps in another layer: not copied on in this one either
      group.fail({load.cancelled.load() ? ErrorCode::cancelled : ErrorCode::io,
                  "a block failed in another layer; leading() says what is left"});
      continue;
    }
    if (item.through.object == nullptr) continue;
    if (store_.geometry().any_size) {
      for (unsigned part = 0; part < item.parts; ++part) {
        const Extent from = landing(load, i, part);
        const std::uint64_t at = part * store_.geometry().fragment().value;
        add_copy(group, i, {item.user.extent.part(at, from.length), from}, pairs);
      }
      continue;
    }
    parts.clear();
    fragments(store_.geometry(), item.user.extent, load.options.layout, item.user.position,
              group.first, group.layers, parts);
    for (const Fragment& part : parts) {
      const auto layer = static_cast<unsigned>(part.in_block / store_.geometry().fragment().value);
      pairs.push_back({.to = part.user, .from = passing(load, item, layer, part.bytes)});
      group.owners.push_back(i);
    }
  }
  if (pairs.empty()) return finish(group);
  listen_to(group, pairs, &Loads::passed_on);
}

void Loads::passed_on(LoadGroup& group, bool well) noexcept {
  if (!well) note_failures(group, false);
  finish(group);
}

bool Loads::may_be_lost(const LoadGroup& group, const LoadItem& item) const {
  if (from_folder(item)) return true;
  const Object& source = *store_.table.tier(item.tier).buffer;
  return source.memory() == nullptr && source.node() != group.load->into.object->node();
}

void Loads::fail_item(LoadGroup& group, unsigned index, const Error& error, bool read,
                      bool torn) noexcept {
  LoadItem& item = group.load->items[index];
  item.failed = true;
  const std::size_t block = group.load->numbers[index];
  std::size_t leading = group.load->leading.load();
  while (block < leading && !group.load->leading.compare_exchange_weak(leading, block)) {
  }
  group.fail(error);
  if (!read || error.code != ErrorCode::io || !may_be_lost(group, item)) return;
  const TableLock lock(store_.table);
  store_.table.note(error);
  store_.table.damage(item.entry->copies[item.tier], item.tier, torn);
}

// Marks the failed parts of a transfer.
void Loads::note_failures(LoadGroup& group, bool read) noexcept {
  const Transfer moved = group.transfer();
  for (std::size_t i = 0; i < group.owners.size(); ++i) {
    try {
      const auto status = moved.poll(i);
      if (status && !*status) fail_item(group, group.owners[i], status->error(), read);
    } catch (const std::bad_alloc&) {  // copying the error
      fail_item(group, group.owners[i], kNoMemory, false);
    }
  }
}

void Loads::finish(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  read(group);
  store_.coalescer.share(group);
  {
    Later later;  // starts stores that found a slot, after the last group is reported
    // The last group is reported after the blocks are unpinned.
    if (load.left.fetch_sub(1) == 1) {
      ended(load, later);
      load.options.keep.reset();
    }
    group.ending.report(store_.mover.waiting(), load.word);
  }
  store_.jobs.end_operation();
}

}  // namespace headrace::kvcache
