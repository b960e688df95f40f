// SPDX-License-Identifier: Apache-2.0
#include "kvcache/tiers.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/fail.h"

#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

// After this many blocks offered in one search, the tier is considered fully pinned.
constexpr unsigned kEffort = 1024;
// One slot in this many is kept free, so that stores need not wait for demotions.
constexpr std::uint32_t kReserve = 16;

const Error kTorn{ErrorCode::io,
                  "a block on SSD is not what was written there; its next load drops it"};

}  // namespace

std::optional<std::uint32_t> Tiers::take_slots(unsigned index, std::size_t count, Loss loss) {
  Tier& tier = store_.table.tier(index);
  const Nanoseconds now = store_.mover.clock().now();
  if (count > tier.largest() || tier.all_closed(now)) return std::nullopt;
  if (const auto free = tier.take_free(count, now)) return free;
  if (tier.folder == nullptr) evict(index, count, loss);
  while (tier.folder != nullptr && !tier.has_free(count, now) && evict_one(index, count, loss)) {
  }
  return tier.has_free(count, now) ? tier.take_free(count, now) : std::nullopt;
}

void Tiers::evict_for(std::size_t waiting) {
  if (store_.table.tier(0).folder != nullptr) return;  // take_slots() evicts there
  evict(0, waiting, Loss::allowed);
  evict(0, waiting + reserve_of(0), Loss::never);
  for (unsigned tier = 1; tier + 1 < store_.table.tiers(); ++tier) {
    evict(tier, reserve_of(tier), Loss::never);
  }
}

void Tiers::evict(unsigned index, std::size_t wanted, Loss loss) {
  const Tier& tier = store_.table.tier(index);
  while (tier.free.size() + tier.leaving < wanted && tier.leaving < most_moving()) {
    if (!evict_one(index, 1, loss)) return;
  }
}

bool Tiers::evict_one(unsigned index, std::size_t count, Loss loss) {
  Tier& tier = store_.table.tier(index);
  const Nanoseconds now = store_.mover.clock().now();
  const auto may_leave = [&](EvictionLinks& links) REQUIRES(kTable) {
    const Copy& copy = static_cast<Copy&>(links);
    return copy.entry->pins == 0 && copy.state == Copy::State::ready &&
           tier.may_evict(copy.slot, count, now) &&
           !copy.entry->has(Copy::State::filling);  // perhaps from this one
  };
  // Too large for a std::function without an allocation.
  EvictionLinks* const chosen = tier.order->choose(std::ref(may_leave), kEffort);
  if (chosen == nullptr) return false;
  Copy& copy = static_cast<Copy&>(*chosen);
  const bool kept = copy.entry->elsewhere(copy);
  if (!kept && demote(copy, index, loss)) return true;
  if (!kept && loss == Loss::never) return false;
  ++(kept ? tier.counts.evicted : tier.counts.dropped);
  tier.order->evict(copy, copy.entry->key.low);
  store_.table.drop(copy, index);
  return true;
}

std::size_t Tiers::reserve_of(unsigned index) const {
  return store_.table.tier(index).slots / kReserve;
}

std::size_t Tiers::most_moving() const {
  return std::max<std::size_t>(store_.options.in_flight.value / store_.table.block_bytes(), 1);
}

bool Tiers::demote(Copy& copy, unsigned index, Loss loss) {
  BlockTable& table = store_.table;
  if (table.closing) return false;
  const Source source = loss == Loss::never ? Source::leaves_if_copied : Source::leaves;
  for (unsigned to = index + 1; to < table.tiers(); ++to) {
    if (loss == Loss::never && store_.mover.clock().now() < table.tier(to).rests) continue;
    // The last tier cannot demote its blocks: an evicted block is dropped, whatever arrives.
    const std::size_t count = table.slots_of(copy.entry->bytes);
    const auto slot = take_slots(to, count, to + 1 == table.tiers() ? Loss::allowed : loss);
    if (!slot) continue;
    if (send(copy, index, to, *slot, source)) return true;
    table.tier(to).give_back(*slot);
    return false;
  }
  return false;
}

// A block used again after no more uses of blocks than a tier has slots would still be in that tier
// under LRU. All blocks that recur within so few uses fit into the tier together, so they cannot
// evict each other forever. Blocks that recur later, as in a scan, only take free slots.
bool Tiers::may_promote(const Entry& entry, unsigned to, std::uint64_t since) {
  const Tier& tier = store_.table.tier(to);
  if (entry.copies[to].state != Copy::State::none) return false;
  if (to == 0 && store_.arrivals.waiting()) return false;
  return tier.free.size() > reserve_of(to) || since <= tier.slots - reserve_of(to);
}

void Tiers::promote(Entry& entry, std::optional<std::uint64_t> since) {
  BlockTable& table = store_.table;
  const auto from = entry.fastest();
  if (!since || !from || table.closing || promoting_ >= most_moving()) return;
  Copy& copy = entry.copies[*from];
  if (copy.state != Copy::State::ready) return;
  // From a folder it comes through a slot of the first tier that CPUs address, if there is one.
  if (table.tier(*from).folder != nullptr && table.for_cpus()) return;
  for (unsigned to = 0; to < *from; ++to) {
    if (!may_promote(entry, to, *since)) continue;
    const auto slot = take_slots(to, table.slots_of(entry.bytes), Loss::never);
    if (!slot) continue;
    if (!send(copy, *from, to, *slot, Source::stays)) table.tier(to).give_back(*slot);
    return;
  }
}

void TierCopy::run() noexcept {
  if (heard_late(core->jobs)) return;
  const Tier& source_tier = core->table.tier(from);
  const bool in_memory = source_tier.buffer != nullptr && source_tier.buffer->memory() != nullptr;
  const bool seen = in_memory || (!source_tier.folder && !core->table.tier(to).folder);
  if (!seen && passage == nullptr) return fetch();
  if (source_tier.folder != nullptr && !verified(*source_tier.folder)) {
    return end(&kTorn);  // the next load drops the block
  }
  try {
    send(seen);
  } catch (const std::bad_alloc&) {  // before the copy was made
    writing = false;
    end(&kNoMemory);
  }
}

void TierCopy::send(bool seen) {
  const Tier& source_tier = core->table.tier(from);
  const Tier& target = core->table.tier(to);
  std::vector<MovePair> pairs;
  std::vector<MovePair> headers;
  Folder::Part part{.block_bytes = entry->bytes};
  if (target.folder != nullptr) part.sequence = target.folder->next_sequence();
  std::uint32_t into = to_slot;
  source_tier.each_part(
      from_slot, entry->bytes, [&](std::uint32_t slot, std::uint64_t at, Bytes bytes) {
        const Extent read =
            seen ? source_tier.in_slot(slot, 0, bytes) : whole(*passage).part(at, bytes);
        add_pair(pairs, {target.in_slot(into, 0, bytes), read});
        if (target.folder != nullptr) {
          target.folder->describe(into, entry->key, part, {read.memory(), bytes.value});
          add_pair(headers, target.folder->header(into));
          ++part.number;
        }
        into = target.next_of(into);
      });
  pairs.insert(pairs.end(), headers.begin(), headers.end());
  if (target.folder != nullptr) {
    writing = true;
    mends = target.folder->mends(to_slot);
  }
  const Transfer copy = core->mover.copy(pairs, {.priority = Priority::migration});
  hear(core->jobs, copy);
}

void TierCopy::copied(const Result<MoveStats>& outcome) noexcept {
  if (!outcome && writing && core->table.tier(to).folder->mend(to_slot) != mends) {
    writing = false;
    return core->jobs.enqueue(*this);  // the file was cut, and is long again
  }
  if (!outcome) return end(&outcome.error());
  if (!std::exchange(fetching, false)) return end(nullptr);
  core->jobs.enqueue(*this);
}

void TierCopy::fetch() noexcept {
  Error why = kNoMemory;
  try {
    auto made = core->passage(Bytes{entry->bytes});
    if (made) {
      passage = std::move(*made);
      std::vector<MovePair> pairs;
      const Tier& tier = core->table.tier(from);
      tier.each_part(
          from_slot, entry->bytes, [&](std::uint32_t slot, std::uint64_t at, Bytes bytes) {
            add_pair(pairs, {whole(*passage).part(at, bytes), tier.in_slot(slot, 0, bytes)});
          });
      fetching = true;
      const Transfer copy = core->mover.copy(pairs, {.priority = Priority::migration});
      return hear(core->jobs, copy);
    }
    why = std::move(made.error());
  } catch (const std::bad_alloc&) {  // before the copy was made
    fetching = false;
  }
  end(&why);
}

bool TierCopy::verified(const Folders& folder) const {
  const std::uint64_t fragment = core->geometry().fragment().value;
  std::uint32_t slot = from_slot;
  unsigned layer = 0;
  for (std::uint64_t at = 0; at < entry->bytes; at += fragment, ++layer) {
    const std::span bytes(passage->memory() + at, std::min(fragment, entry->bytes - at));
    if (!folder.fits(slot, entry->key, layer, bytes)) return false;
    if (core->geometry().any_size) slot = core->table.tier(from).next_of(slot);
  }
  return true;
}

void TierCopy::end(const Error* why) noexcept {
  const std::unique_ptr<TierCopy> mine(this);
  core->tiers.sent(*this, why);
}

bool Tiers::write(Copy& copy, unsigned index, std::shared_ptr<StoredState> for_store) {
  const auto last = static_cast<unsigned>(store_.table.tiers() - 1);
  Tier& folder = store_.table.last();
  const Nanoseconds now = store_.mover.clock().now();
  const std::size_t count = store_.table.slots_of(copy.entry->bytes);
  const auto slot = for_store != nullptr  ? take_slots(last, count, Loss::allowed)
                    : now >= folder.rests ? folder.take_free(count, now)
                                          : std::nullopt;
  if (!slot) return false;
  const Source source = for_store != nullptr ? Source::stays : Source::idle;
  if (send(copy, index, last, *slot, source, std::move(for_store))) return true;
  folder.give_back(*slot);
  return false;
}

bool Tiers::send(Copy& copy, unsigned index, unsigned to, std::uint32_t slot, Source source,
                 std::shared_ptr<StoredState> for_store) {
  auto* const moving = new (std::nothrow) TierCopy;
  if (moving == nullptr) return false;
  moving->core = &store_;
  moving->entry = copy.entry;
  moving->from = index;
  moving->to = to;
  moving->from_slot = copy.slot;
  moving->to_slot = slot;
  moving->source = source;
  moving->for_store = std::move(for_store);
  Tier& tier = store_.table.tier(index);
  const bool stays = source == Source::stays || source == Source::idle;
  if (!stays) tier.order->remove(copy);
  store_.table.fill(copy.entry->copies[to], *copy.entry, to, slot);
  copy.state = Copy::State::leaving;
  (moving->promotes() ? promoting_
   : stays            ? tier.writing
                      : tier.leaving) += store_.table.slots_of(copy.entry->bytes);
  store_.jobs.begin_operation();
  store_.jobs.enqueue(*moving);
  return true;
}

void Tiers::sent(TierCopy& copy, const Error* why) noexcept {
  {
    Later later;
    const TableLock lock(store_.table);
    settle(copy, why, later);
    store_.arrivals.place(later);
  }
  store_.flusher.progressed();
  store_.flusher.write_while_idle();
  store_.jobs.end_operation();
}

void Tiers::settle(TierCopy& copy, const Error* why, Later& later) {
  BlockTable& table = store_.table;
  Entry& entry = *copy.entry;
  const Key key = entry.key;
  Copy& from = entry.copies[copy.from];
  Copy& to = entry.copies[copy.to];
  Tier& source = table.tier(copy.from);
  Tier& target = table.tier(copy.to);
  const bool idle = copy.source == Source::idle;
  const bool asked_to = idle || copy.source == Source::stays;
  const std::uint64_t bytes = entry.bytes;
  (copy.promotes() ? promoting_
   : asked_to      ? source.writing
                   : source.leaving) -= table.slots_of(bytes);
  const Nanoseconds now = store_.mover.clock().now();
  if (why == nullptr) {
    table.ready(to, copy.to);
    ++target.counts.arrived;
    if (target.folder != nullptr) target.disk_has(copy.to_slot);
  } else {
    table.note(*why);
    table.drop(to, copy.to, copy.writing);
  }
  const bool refused = why != nullptr && copy.writing;
  const bool next = refused && target.disk_refused(copy.to_slot, *why, now);
  const bool several = target.folder != nullptr && target.folder->disks() > 1;
  // Disks that fail slowly are due again one after the other: the block would never leave.
  const bool endless = several && target.disk.refused && now >= *target.disk.refused + kTryDisks;
  const bool other_disk = next && several && !endless;
  const bool full = other_disk || (refused && why->code == ErrorCode::exhausted && !endless);
  if (why != nullptr && idle && !entry.removed) store_.flusher.expect_idle(key);
  if (why != nullptr && !other_disk && (idle || copy.source == Source::leaves_if_copied)) {
    target.rests = now + kRest;
  }
  // A block that its disk does not accept stays until its tier needs the slot again, if the disk is
  // full or another disk may accept it. A thread may have pinned it meanwhile.
  const bool stays = asked_to || full || entry.pins > 0 ||
                     (why != nullptr && copy.source == Source::leaves_if_copied);
  // flush() sends it to the other disk.
  const bool retried = asked_to ? other_disk && copy.for_store == nullptr : full;
  if (why != nullptr && !copy.promotes() && !idle && !retried) ++table.counts().failed;
  if (retried && copy.source == Source::stays) entry.refused = true;
  if (stays) {
    from.state = Copy::State::ready;
    if (!asked_to) table.enter_order(from, copy.from);
    if (entry.removed) table.withdraw(from, copy.from);
  } else {
    ++(why == nullptr ? source.counts.evicted : source.counts.dropped);
    table.drop(from, copy.from);
  }
  const auto what = why == nullptr ? &StoredCounts::stored : &StoredCounts::failed;
  if (copy.for_store != nullptr) store_.arrivals.arrived(*copy.for_store, bytes, what, later);
  if (target.folder != nullptr) store_.arrivals.count_followers(key, what, later);
}

}  // namespace headrace::kvcache
