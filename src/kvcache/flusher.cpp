// SPDX-License-Identifier: Apache-2.0
#include "kvcache/flusher.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "core/waiting/patience.h"
#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

// The most bytes that are written at a time while no load runs: the next load waits for them.
constexpr std::uint64_t kIdleBytes = std::uint64_t{8} << 20;

bool any_on_its_way(BlockTable& table, std::span<const Key> keys) REQUIRES(kTable) {
  return std::ranges::any_of(keys, [&](const Key& key) REQUIRES(kTable) {
    const Entry* const entry = table.find(key);
    return entry != nullptr && entry->on_its_way();
  });
}

}  // namespace

void Flusher::progressed() noexcept {
  word_.fetch_add(1);
  store_.mover.waiting().wake_all(word_);
}

void Flusher::expect_idle(const Key& key) noexcept {
  BlockTable& table = store_.table;
  const bool idle = store_.options.tiers.back().write == WriteBack::idle;
  if (table.tiers() == 1 || !table.has_folder() || !idle) return;
  std::size_t slots = 0;
  for (unsigned tier = 0; tier + 1 < table.tiers(); ++tier) slots += table.tier(tier).slots;
  if (when_idle_.size() >= slots) when_idle_.pop_front();
  try {
    when_idle_.push_back(key);
  } catch (const std::bad_alloc&) {  // written when it leaves
  }
  any_when_idle_ = true;
}

void Flusher::write_while_idle() noexcept {
  if (!any_when_idle_ || !store_.loads.none()) return;
  BlockTable& table = store_.table;
  const TableLock lock(table);
  Tier& folder = table.last();
  const Nanoseconds now = store_.mover.clock().now();
  while (!when_idle_.empty() && !table.closing && now >= folder.rests && !folder.all_closed(now) &&
         folder.filling * table.block_bytes() < kIdleBytes) {
    Entry* const entry = table.find(when_idle_.front());
    const bool wanted = entry != nullptr && table.only_in_memory(*entry) && !entry->on_its_way();
    const unsigned tier = wanted ? *entry->fastest() : 0;
    // On its way to another memory: sent() calls this function again at its end.
    if (wanted && entry->copies[tier].state != Copy::State::ready) break;
    when_idle_.pop_front();
    if (wanted) store_.tiers.write(entry->copies[tier], tier, nullptr);
  }
  any_when_idle_ = !when_idle_.empty();
}

bool Flusher::list(Work& work) {
  std::vector<std::pair<std::uint64_t, Key>> used;  // with its last use
  {
    BlockTable& table = store_.table;
    const TableLock lock(table);
    if (!store_.arrivals.passed(work.arrivals) && !table.closing) return false;
    for (const auto& [key, entry] : table.entries()) {
      if (table.only_in_memory(entry)) used.emplace_back(entry.used, key);
    }
  }
  // Keys are taken from the back, in order of use, so the prefix of a prompt is written first.
  // Without it the blocks after it are not found, if time or space ends before all are written.
  std::ranges::sort(used, std::ranges::greater{}, &std::pair<std::uint64_t, Key>::first);
  for (const auto& each : used) work.keys.push_back(each.second);
  work.listed = true;
  return true;
}

void Flusher::send_again(Work& work) {
  BlockTable& table = store_.table;
  std::erase_if(work.sent, [&](const Key& key) REQUIRES(kTable) {
    Entry* const entry = table.find(key);
    if (entry == nullptr) return true;
    if (entry->on_its_way()) return false;
    if (std::exchange(entry->refused, false)) work.keys.push_back(key);
    return true;
  });
}

bool Flusher::write_some(Work& work) {
  BlockTable& table = store_.table;
  const TableLock lock(table);
  if (table.closing) return false;
  const auto last = static_cast<unsigned>(table.tiers() - 1);
  Tier& folder = table.last();
  std::vector<Key>& keys = work.keys;
  send_again(work);
  std::vector<Key> moving;   // blocks on their way to another tier, looked at once they are there
  std::vector<Key> without;  // blocks that have no slots now
  // Writes of other operations leave a share to this flush.
  const std::size_t most = store_.tiers.most_moving();
  const bool all_ended = !work.writes || folder.fills.passed(*work.writes);
  std::size_t left = folder.filling < most ? most - folder.filling : all_ended ? most : 0;
  bool sent = false;
  while (!keys.empty() && !folder.free.empty() && left > 0) {
    const Key key = keys.back();
    keys.pop_back();
    Entry* const entry = table.find(key);
    if (entry == nullptr || !table.only_in_memory(*entry)) continue;
    const unsigned tier = *entry->fastest();
    Copy& copy = entry->copies[tier];
    if (copy.state != Copy::State::ready || entry->on_its_way()) {
      moving.push_back(key);
      continue;
    }
    const std::size_t count = table.slots_of(entry->bytes);
    const auto slot = folder.take_usable(count);
    if (!slot) {  // a smaller block may have space
      without.push_back(key);
      continue;
    }
    if (!store_.tiers.send(copy, tier, last, *slot, Tiers::Source::stays)) {
      folder.give_back(*slot);
      ++table.counts().failed;
      table.note(kNoMemory);
      keys.clear();
      break;
    }
    work.sent.push_back(key);
    sent = true;
    left -= std::min(left, count);
  }
  keys.insert(keys.end(), without.rbegin(), without.rend());
  keys.insert(keys.end(), moving.rbegin(), moving.rend());
  if (sent || !work.writes) {
    work.writes = folder.fills.mark();
    work.changes = folder.fills.begun() + store_.remover.list_changes();
  }
  return !moving.empty() || !folder.fills.passed(*work.writes) || any_on_its_way(table, keys);
}

Status Flusher::outcome(std::span<const Key> left, std::uint64_t failed, Status status) {
  BlockTable& table = store_.table;
  const TableLock lock(table);
  std::uint64_t lost = table.counts().failed - failed;
  if (!table.closing && table.last().any_refuses()) {  // no slot
    for (const Key& key : left) {
      const Entry* const entry = table.find(key);
      if (entry != nullptr && table.only_in_memory(*entry)) ++lost;
    }
  }
  if (lost > 0) {
    return fail(ErrorCode::io, "{} blocks could not be written: {}", lost,
                table.counts().last_error);
  }
  if (const std::size_t listed = store_.remover.failed(); listed > 0) {
    return fail(
        ErrorCode::io,
        "{} removed blocks are still listed on SSD: {}; call flush() again, or they come back "
        "when the folder is opened",
        listed, table.counts().last_error);
  }
  HEADRACE_TRY_STATUS(std::move(status));
  return table.last().folder->still_there();
}

// Without it a power failure could lose blocks, and bring removed ones back.
Status Flusher::sync(std::uint64_t changes) {
  {
    const TableLock lock(store_.table);
    if (synced_ && changes <= *synced_) return {};
  }
  HEADRACE_TRY_STATUS(store_.table.last().folder->sync());
  const TableLock lock(store_.table);
  synced_ = std::max(synced_.value_or(0), changes);
  return {};
}

Status Flusher::flush(Nanoseconds timeout, const Stop& stop) {
  HEADRACE_TRY_STATUS(store_.origin.check(kTheStore));
  {
    const TableLock lock(store_.table);
    HEADRACE_TRY_STATUS(store_.check_open());
    store_.jobs.begin_operation();
  }
  struct Ends {  // also without memory
    JobQueue& jobs;
    ~Ends() { jobs.end_operation(); }
  } const ends{store_.jobs};
  HEADRACE_TRY_STATUS(flush_all(timeout, stop));
  return store_.check_open();
}

Status Flusher::flush_all(Nanoseconds timeout, const Stop& stop) {
  BlockTable& table = store_.table;
  if (!table.has_folder()) return {};
  Work work;
  {
    const TableLock lock(table);
    work.arrivals = store_.arrivals.mark();
    work.failed = table.counts().failed;
    table.last().reopen_disks();
    store_.remover.retry();
  }
  const Clock& clock = store_.mover.clock();
  Patience patience(clock, store_.mover.waiting(), timeout);
  Nanoseconds asked = clock.now();
  for (;;) {
    const std::uint32_t seen = word_.load();
    if ((work.listed || list(work)) && !write_some(work)) {
      const Status written = outcome(work.keys, work.failed, {});
      Status synced = sync(work.changes);
      return written ? synced : written;
    }
    Status ended = store_.wait(
        word_, [&] { return word_.load() != seen; },
        stop ? std::min(patience.left(), kAskToStop) : patience.left(), "the flush");
    if (!ended && (ended.error().code != ErrorCode::timed_out || !stop || patience.over())) {
      return outcome({}, work.failed, std::move(ended));
    }
    if (!stop || (ended && clock.now() - asked < kAskToStop)) continue;
    asked = clock.now();
    if (stop()) {
      return outcome({}, work.failed, fail(ErrorCode::cancelled, "the flush was stopped"));
    }
  }
}

}  // namespace headrace::kvcache
