// SPDX-License-Identifier: Apache-2.0
// Copies of one block between tiers: demotion, writing by flush(), and promotion.
#include <algorithm>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

// The checksums, if one end is a folder, and the copy.
struct Transit final : Copying {
  StoreCore* core = nullptr;
  Entry* entry = nullptr;
  unsigned from = 0;
  unsigned to = 0;
  std::uint32_t from_slot = 0;
  std::uint32_t to_slot = 0;
  StoreCore::Then then = StoreCore::Then::stays;
  std::unique_ptr<Buffer> passage;  // memory in which CPUs see the block, if neither end is such
  bool fetching = false;            // the copy to `passage` is in flight
  bool writing = false;             // the copy to a folder is in flight

  bool rises() const { return to < from; }
  void run() noexcept override {
    if (heard_late(*core)) return;
    const Tier& source = core->tiers_[from];
    const Tier& target = core->tiers_[to];
    Extent bytes = core->in_slot(source, from_slot, 0, Bytes{core->block_});
    const bool seen = bytes.memory() != nullptr || (!source.folder && !target.folder);
    if (!seen && passage == nullptr) return fetch(bytes);
    if (!seen) bytes = whole(*passage);
    if (source.folder != nullptr && !verified(*source.folder)) {
      return end(&kTorn);  // the next load drops the block
    }
    std::array<MovePair, 2> pairs{{{core->in_slot(target, to_slot, 0, bytes.length), bytes}}};
    if (target.folder != nullptr) {
      target.folder->describe(to_slot, entry->key, {bytes.memory(), core->block_});
      pairs[1] = target.folder->header(to_slot);
      writing = true;
    }
    const Transfer copy =
        core->mover().copy(std::span(pairs).first(target.folder != nullptr ? 2 : 1),
                           {.priority = Priority::migration});
    hear(*core, copy);
  }
  void copied(const Result<MoveStats>& outcome) noexcept override {
    if (!outcome) return end(&outcome.error());
    if (!std::exchange(fetching, false)) return end(nullptr);
    core->enqueue(*this);
  }

 private:
  static inline const Error kTorn{
      ErrorCode::io, "a block on SSD is not what was written there; its next load drops it"};

  // Copies the block to memory that CPUs address; then run() is called again.
  void fetch(const Extent& bytes) noexcept {
    auto made = [&]() -> Result<std::unique_ptr<Buffer>> {
      try {
        return allocate(core->mover().machine(), bytes.length, core->passage_memory());
      } catch (const std::bad_alloc&) {
        return Unexpected(kNoMemory);
      }
    }();
    if (!made) return end(&made.error());
    passage = std::move(*made);
    fetching = true;
    const Transfer copy =
        core->mover().copy(whole(*passage), bytes, {.priority = Priority::migration});
    hear(*core, copy);
  }
  bool verified(const Folder& folder) const {
    const std::size_t fragment = core->geometry().fragment().value;
    for (unsigned layer = 0; layer < core->geometry().layers; ++layer) {
      const std::span bytes(passage->memory() + layer * fragment, fragment);
      if (!folder.fits(from_slot, entry->key, layer, bytes)) return false;
    }
    return true;
  }
  void end(const Error* why) noexcept {
    const std::unique_ptr<Transit> mine(this);
    core->sent(*this, why);
  }
};

bool StoreCore::send(Copy& copy, unsigned index, unsigned to, std::uint32_t slot, Then then) {
  auto* const transit = new (std::nothrow) Transit;  // deletes itself at its end
  if (transit == nullptr) return false;
  transit->core = this;
  transit->entry = copy.entry;
  transit->from = index;
  transit->to = to;
  transit->from_slot = copy.slot;
  transit->to_slot = slot;
  transit->then = then;
  if (then != Then::stays) tiers_[index].order->remove(copy);
  fill(copy.entry->copies[to], *copy.entry, to, slot);
  copy.state = Copy::State::leaving;
  if (transit->rises()) {
    ++rising_;
  } else {
    ++tiers_[index].leaving;
  }
  begin_operation();
  enqueue(*transit);
  return true;
}

void StoreCore::sent(Transit& transit, const Error* why) noexcept {
  {
    Later later;
    const MutexLock lock(mutex_);
    Entry& entry = *transit.entry;
    Copy& from = entry.copies[transit.from];
    Copy& to = entry.copies[transit.to];
    Tier& source = tiers_[transit.from];
    if (transit.rises()) {
      --rising_;
    } else {
      --source.leaving;
    }
    Tier& target = tiers_[transit.to];
    const bool full = why != nullptr && transit.writing && why->code == ErrorCode::exhausted;
    if (why == nullptr) {
      ready(to, transit.to);
      ++target.counts.arrived;
      if (target.folder != nullptr) disk_has(target, transit.to_slot);
    } else {
      note(*why);
      drop(to, transit.to, transit.writing);
    }
    if (full) disk_is_full(target, transit.to_slot);
    if (why != nullptr && transit.then == Then::leaves_if_copied) {
      target.rests = mover_.clock().now() + kRest;
    }
    const bool asked_to = transit.then == Then::stays;
    // A block that a full disk does not accept stays until its tier needs the slot again. A thread
    // may have pinned it meanwhile.
    const bool stays = asked_to || full || entry.pins > 0 ||
                       (why != nullptr && transit.then == Then::leaves_if_copied);
    if (why != nullptr && !transit.rises() && (asked_to || !full)) ++counts_.failed;
    if (stays) {
      from.state = Copy::State::ready;
      if (!asked_to) enter_order(from, transit.from);
      if (entry.removed) withdraw(from, transit.from);
    } else {
      ++(why == nullptr ? source.counts.evicted : source.counts.dropped);
      drop(from, transit.from);
    }
    place_pending(later);
  }
  transits_ended_.fetch_add(1);
  mover_.waiting().wake_all(transits_ended_);
  end_operation();
}

std::optional<std::uint64_t> StoreCore::use(Entry& entry) {
  const std::uint64_t before = std::exchange(entry.used, ++uses_);
  if (before == 0) return std::nullopt;
  return uses_ - before;
}

// A block used again after no more uses of blocks than a tier has slots would still be in that tier
// under LRU. All blocks that recur within so few uses fit into the tier together, so they cannot
// evict each other forever. Blocks that recur later, as in a scan, only take free slots.
bool StoreCore::may_rise(const Entry& entry, unsigned to, std::uint64_t since) const {
  const Tier& tier = tiers_[to];
  if (entry.copies[to].state != Copy::State::none) return false;
  if (to == 0 && !pending_.empty()) return false;
  return tier.free.size() > reserve_of(to) || since <= tier.slots - reserve_of(to);
}

void StoreCore::rise(Entry& entry, std::optional<std::uint64_t> since) {
  const auto from = entry.fastest();
  if (!since || !from || closing_ || rising_ >= most_moving()) return;
  Copy& copy = entry.copies[*from];
  if (copy.state != Copy::State::ready) return;
  // From a folder it comes through a slot of the first tier that CPUs address, if there is one.
  if (tiers_[*from].folder != nullptr && for_cpus_) return;
  for (unsigned to = 0; to < *from; ++to) {
    if (!may_rise(entry, to, *since)) continue;
    const auto slot = take_slot(to, Loss::never);
    if (!slot) continue;
    if (!send(copy, *from, to, *slot, Then::stays)) tiers_[to].free.push_back(*slot);
    return;
  }
}

}  // namespace headrace::kvcache
