// Who has to leave a tier, and how blocks get to the next one.
#include <algorithm>

#include "core/check.h"
#include "core/fail.h"
#include "kv/core.h"

namespace headrace::kv {

namespace {

// Blocks that an order may offer in one search before the tier is taken to be all pins.
constexpr unsigned kEffort = 1024;
// One slot in so many is kept free, so that stores need not wait for the way of others.
constexpr std::uint32_t kReserve = 16;

}  // namespace

// The way of one block to a slower tier: its checksums, and then the copy.
struct Demotion final : Copying {
  StoreCore* core = nullptr;
  Entry* entry = nullptr;
  unsigned from = 0;
  unsigned to = 0;
  std::uint32_t from_slot = 0;
  std::uint32_t to_slot = 0;
  bool stays = false;               // as send()
  std::unique_ptr<Buffer> passage;  // where CPUs see the block, if not in the slot it comes from
  bool fetching = false;            // it is on its way there
  void run() noexcept override {
    if (heard_late(*core)) return;
    const Tier& source = core->tiers_[from];
    const Tier& target = core->tiers_[to];
    const Bytes block{core->block_};
    Extent bytes = core->in_slot(source, from_slot, 0, block);
    const bool seen = target.folder == nullptr || bytes.memory() != nullptr;
    if (!seen && passage == nullptr) return fetch(bytes);
    if (!seen) bytes = whole(*passage);
    std::array<MovePair, 2> pairs{{{core->in_slot(target, to_slot, 0, block), bytes}}};
    if (target.folder != nullptr) {
      target.folder->describe(to_slot, entry->key, {bytes.memory(), block.value});
      pairs[1] = target.folder->header(to_slot);
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
  // To memory that CPUs address; then it runs again.
  void fetch(const Extent& bytes) noexcept {
    auto made = [&]() -> Result<std::unique_ptr<Buffer>> {
      try {
        return allocate(core->mover().machine(), bytes.length, core->passage_memory());
      } catch (const std::bad_alloc&) {
        return std::unexpected<Error>(kNoMemory);
      }
    }();
    if (!made) return end(&made.error());
    passage = std::move(*made);
    fetching = true;
    const Transfer copy =
        core->mover().copy(whole(*passage), bytes, {.priority = Priority::migration});
    hear(*core, copy);
  }
  void end(const Error* why) noexcept {
    const std::unique_ptr<Demotion> mine(this);
    core->demoted(*this, why);
  }
};

std::optional<std::uint32_t> StoreCore::take_slot(unsigned index) {
  Tier& tier = tiers_[index];
  if (tier.free.empty()) make_room(index, 1);
  if (tier.free.empty()) return std::nullopt;
  const std::uint32_t slot = tier.free.back();
  tier.free.pop_back();
  return slot;
}

void StoreCore::make_room(unsigned index, std::size_t wanted) {
  Tier& tier = tiers_[index];
  const std::size_t most_leaving = std::max<std::size_t>(options_.in_flight.value / block_, 1);
  while (tier.free.size() + tier.leaving < wanted && tier.leaving < most_leaving) {
    if (!let_one_leave(index)) return;
  }
}

bool StoreCore::let_one_leave(unsigned index) {
  Tier& tier = tiers_[index];
  EvictionLinks* const chosen = tier.order->choose(
      [](EvictionLinks& links) {
        const Copy& copy = static_cast<Copy&>(links);
        return copy.entry->pins == 0 && copy.state == Copy::State::ready &&
               std::ranges::none_of(copy.entry->copies, [](const Copy& other) {
                 return other.state == Copy::State::filling;  // flush() is writing it
               });
      },
      kEffort);
  if (chosen == nullptr) return false;
  Copy& copy = static_cast<Copy&>(*chosen);
  const bool kept = elsewhere(*copy.entry, index);
  if (!kept && demote(copy, index)) return true;
  ++(kept ? tier.counts.evicted : tier.counts.dropped);
  tier.order->remove(copy);
  drop(copy, index);
  return true;
}

std::size_t StoreCore::reserve_of(unsigned index) const { return tiers_[index].slots / kReserve; }

bool StoreCore::elsewhere(const Entry& entry, unsigned index) const {
  return std::any_of(entry.copies.begin() + index + 1, entry.copies.end(),
                     [](const Copy& copy) { return copy.served(); });
}

bool StoreCore::demote(Copy& copy, unsigned index) {
  if (closing_) return false;
  for (unsigned to = index + 1; to < tiers_.size(); ++to) {
    const auto slot = take_slot(to);
    if (!slot) continue;
    if (send(copy, index, to, *slot, false)) return true;
    tiers_[to].free.push_back(*slot);
    return false;
  }
  return false;
}

bool StoreCore::send(Copy& copy, unsigned index, unsigned to, std::uint32_t slot, bool stays) {
  auto* const demotion = new (std::nothrow) Demotion;  // deletes itself at its end
  if (demotion == nullptr) return false;
  demotion->core = this;
  demotion->entry = copy.entry;
  demotion->from = index;
  demotion->to = to;
  demotion->from_slot = copy.slot;
  demotion->to_slot = slot;
  demotion->stays = stays;
  if (!stays) tiers_[index].order->remove(copy);
  fill(copy.entry->copies[to], *copy.entry, to, slot);
  copy.state = Copy::State::leaving;
  ++tiers_[index].leaving;
  begin_operation();
  enqueue(*demotion);
  return true;
}

void StoreCore::demoted(Demotion& demotion, const Error* why) noexcept {
  {
    Later later;
    const MutexLock lock(mutex_);
    Entry& entry = *demotion.entry;
    Copy& from = entry.copies[demotion.from];
    Copy& to = entry.copies[demotion.to];
    Tier& source = tiers_[demotion.from];
    --source.leaving;
    if (why == nullptr) {
      ready(to, demotion.to);
      ++tiers_[demotion.to].counts.arrived;
    } else {
      ++counts_.failed;
      note(*why);
    }
    // Somebody may have pinned it meanwhile: then it stays too.
    const bool stays = demotion.stays || entry.pins > 0;
    if (stays) {
      from.state = Copy::State::ready;
      if (!demotion.stays) source.order->insert(from);
    } else {
      ++(why == nullptr ? source.counts.evicted : source.counts.dropped);
    }
    if (why != nullptr) drop(to, demotion.to);
    if (!stays) drop(from, demotion.from);
    place_pending(later);
  }
  demotions_ended_.fetch_add(1);
  mover_.waiting().wake_all(demotions_ended_);
  end_operation();
}

void StoreCore::fill(Copy& copy, Entry& entry, unsigned index, std::uint32_t slot) {
  copy.entry = &entry;
  copy.slot = slot;
  copy.state = Copy::State::filling;
  copy.visited = false;
  ++tiers_[index].filling;
}

void StoreCore::ready(Copy& copy, unsigned index) {
  DCHECK(copy.state == Copy::State::filling);
  copy.state = Copy::State::ready;
  --tiers_[index].filling;
  tiers_[index].order->insert(copy);
}

void StoreCore::drop(Copy& copy, unsigned index) {
  Tier& tier = tiers_[index];
  if (copy.state == Copy::State::filling) --tier.filling;
  copy.state = Copy::State::none;
  tier.free.push_back(copy.slot);
  const Entry& entry = *copy.entry;
  const bool gone =
      !entry.waiting && entry.pins == 0 && std::ranges::all_of(entry.copies, [](const Copy& other) {
        return other.state == Copy::State::none;
      });
  if (gone) entries_.erase(Key{entry.key});
}

void StoreCore::pin(Entry& entry) {
  if (entry.pins++ == 0) ++pinned_;
}

void StoreCore::unpin(Entry& entry) {
  if (--entry.pins > 0) return;
  --pinned_;
  std::array<unsigned, kMostTiers> damaged{};
  std::size_t count = 0;
  for (unsigned tier = 0; tier < tiers_.size(); ++tier) {
    if (entry.copies[tier].state == Copy::State::damaged) damaged[count++] = tier;
  }
  for (std::size_t i = 0; i < count; ++i) drop(entry.copies[damaged[i]], damaged[i]);
}

bool StoreCore::only_in_memory(const Entry& entry) const {
  const Copy& last = entry.copies[tiers_.size() - 1];
  return last.state == Copy::State::none && entry.fastest().has_value();
}

bool StoreCore::flush_some(std::vector<Key>& keys) {
  const MutexLock lock(mutex_);
  const auto last = static_cast<unsigned>(tiers_.size() - 1);
  Tier& folder = tiers_[last];
  const std::size_t most = std::max<std::size_t>(options_.in_flight.value / block_, 1);
  std::vector<Key> moving;  // to a slower memory: their turn comes when they are there
  while (!keys.empty() && !folder.free.empty() && folder.filling < most) {
    const auto found = entries_.find(keys.back());
    keys.pop_back();
    if (found == entries_.end() || !only_in_memory(found->second)) continue;
    const unsigned tier = *found->second.fastest();
    Copy& copy = found->second.copies[tier];
    if (copy.state != Copy::State::ready) {
      moving.push_back(found->first);
      continue;
    }
    if (!send(copy, tier, last, folder.free.back(), true)) {
      ++counts_.failed;
      note(kNoMemory);
      keys.clear();
      break;
    }
    folder.free.pop_back();
  }
  keys.insert(keys.end(), moving.begin(), moving.end());
  return folder.filling > 0 || !moving.empty();
}

Status StoreCore::flush(Nanoseconds timeout) {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  if (tiers_.back().folder == nullptr) return {};
  std::vector<Key> keys;
  std::uint64_t failed = 0;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (only_in_memory(entry)) keys.push_back(key);
    }
    failed = counts_.failed;
  }
  const Nanoseconds end = mover_.clock().now() + std::clamp(timeout, Nanoseconds{0}, kLongestWait);
  for (;;) {
    const std::uint32_t seen = demotions_ended_.load();
    if (!flush_some(keys)) break;
    HEADRACE_TRY_STATUS(wait(
        demotions_ended_, [&] { return demotions_ended_.load() != seen; },
        end - mover_.clock().now(), "the flush"));
  }
  const MutexLock lock(mutex_);
  if (counts_.failed != failed) {
    return fail(ErrorCode::io, "{} blocks could not be written: {}", counts_.failed - failed,
                last_error_);
  }
  return {};
}

}  // namespace headrace::kv
