// SPDX-License-Identifier: Apache-2.0
#include "cache/writes.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <utility>

#include "cache/core.h"
#include "core/check.h"
#include "core/fail.h"

namespace headrace {
namespace {

bool overlaps(const Fill& fill, const Range* range) {
  return range == nullptr || fill.source.overlaps(*range);
}

}  // namespace

// Also of copies that left the index: their bytes must not change while an engine reads them.
bool Blocks::copies_overlap(const Range& range) const {
  for (const Fill* fill = fills_.front(); fill != nullptr; fill = fill->next) {
    if (fill->source.overlaps(range)) return true;
  }
  return false;
}

Blocks::Turn Blocks::enter_write(const Range& range, CacheEntry*& granted) {
  CacheEntry* own = nullptr;
  bool refused = false;
  shard_.hits.index.visit_overlapping(range, [&](CacheEntry& entry) {
    if (entry.range() == range) {
      own = &entry;
    } else {
      refused = entry.kept();
    }
    return !refused;
  });
  if (refused) return Turn::refused;
  if (own != nullptr) shard_.hits.count_pins(*own);
  if (own != nullptr && own->moving != 0 && own->pins == 1) shard_.chain.give_way(*own);
  const bool busy = own != nullptr && (own->pins > 0 || own->cleaning != 0);
  if (busy || copies_overlap(range)) {
    if (own != nullptr) own->write_wanted = 1;
    return Turn::wait;
  }
  if (own != nullptr && own->fill == nullptr) {
    entries_.take_fill(*own);
    describe(*own);
  }
  drop_others(range, own);
  if (own == nullptr) return may_enter_index(range) ? Turn::absent : Turn::refused;
  shard_.space.spare(*own);
  own->written = 1;
  own->write_wanted = 0;
  shard_.hits.pin(*own);
  granted = own;
  return Turn::granted;
}

// Holders of these blocks keep the bytes from before.
void Blocks::drop_others(const Range& range, const CacheEntry* own) {
  std::array<CacheEntry*, 16> others{};
  std::size_t count = 0;
  do {  // collected first, since drop() changes the index
    count = 0;
    shard_.hits.index.visit_overlapping(range, [&](CacheEntry& entry) {
      if (&entry != own) others[count++] = &entry;
      return count < others.size();
    });
    shard_.hits.count_pins(std::span(others).first(count));
    for (std::size_t i = 0; i < count; ++i) drop(*others[i], CacheEvent::Kind::invalidated);
  } while (count == others.size());
}

void Blocks::leave_write(const Range& range) {
  shard_.hits.index.visit_overlapping(range, [](CacheEntry& entry) {
    entry.write_wanted = 0;
    return true;
  });
  changed();
}

void Blocks::end_write(CacheEntry& entry, bool wrote) {
  entry.written = 0;
  Fill* const fill = entry.fill;
  Space::Node& node = shard_.space.node(entry.node);
  if (wrote && entry.dirty == 0) {
    DCHECK(entry.detached == 0 && entry.now() == BlockState::ready);
    entry.dirty = 1;
    fill->changed = ++changes_;
    dirty_.push_back(*fill);
    node.dirty += entry.length;
  } else if (entry.dirty == 0 && entry.detached == 0 && entry.now() == BlockState::ready) {
    entries_.give_fill(entry);
    if (entry.visited) shard_.chain.promote_soon(entry);
  }
  if (entry.dirty != 0 && fill->due) shard_.signals.clean_due = true;  // it was passed over
  if (node.dirty > node.budget - node.budget / kCleanShare + node.leaving) {
    (void)clean_some(static_cast<std::uint16_t>(entry.node));
  }
  changed();
  unpin(entry);
}

Blocks::Turn Blocks::may_read(const Range& range, const CacheEntry* found, bool polite,
                              const Error*& why) {
  if (found != nullptr) {
    const bool taken = found->written != 0 || (polite && found->write_wanted != 0);
    return taken ? Turn::wait : Turn::granted;
  }
  Turn turn = Turn::absent;
  shard_.hits.index.visit_overlapping(range, [&](CacheEntry& entry) {
    if (!entry.kept()) return true;
    turn = Turn::wait;
    if (entry.dirty == 0) return true;
    if (entry.fill->error) {
      why = &*entry.fill->error;
      turn = Turn::refused;
      return false;
    }
    make_due(entry);
    return true;
  });
  return turn;
}

bool Blocks::may_start(const Range& range) const {
  bool may = true;
  shard_.hits.index.visit_overlapping(range,
                                      [&](const CacheEntry& entry) { return may = !entry.kept(); });
  return may;
}

// Threads that wait for a pin, a copy or a write-back look again.
void Blocks::changed() {
  if (!std::exchange(awaited_, false)) return;
  shard_.signals.space_changes.fetch_add(1);
  shard_.deferred.wake_for_space();
}

void Blocks::make_due(CacheEntry& entry, bool for_space) {
  Fill& fill = *entry.fill;
  fill.for_space = fill.for_space || for_space;
  if (fill.due || entry.cleaning != 0 || fill.error) return;
  dirty_.remove(fill);
  due_.push_back(fill);
  fill.due = true;
  shard_.space.node(entry.node).leaving += entry.length;
  shard_.signals.clean_due = true;
}

bool Blocks::clean_some(std::uint16_t number) {
  const Nanoseconds now = failed_.front() == nullptr ? Nanoseconds{0} : shard_.mover.clock().now();
  std::size_t looks = PrefetchPlan::kSlice;
  std::size_t count = 0;
  for (Fill* fill = dirty_.front(); fill != nullptr && count < kBatch && looks > 0; --looks) {
    Fill* const next = fill->next;
    if (fill->entry->node == number) {
      make_due(*fill->entry, true);
      ++count;
    }
    fill = next;
  }
  for (Fill* fill = failed_.front();
       fill != nullptr && now >= retry_at_ && count < kBatch && looks > 0; --looks) {
    Fill* const next = fill->next;
    if (fill->entry->node == number) {
      forgive(*fill);
      make_due(*fill->entry, true);
      ++count;
    }
    fill = next;
  }
  for (const FillList* list : {&writing_, &due_}) {
    const Fill* fill = list->front();
    for (looks = PrefetchPlan::kSlice; fill != nullptr && looks > 0; --looks, fill = fill->next) {
      if (fill->entry->node == number && fill->entry->written == 0) return true;
    }
  }
  return false;
}

// From the failed blocks to the dirty ones, before all of these.
void Blocks::forgive(Fill& fill) {
  failed_.remove(fill);
  fill.error.reset();
  if (dirty_.front() == nullptr) {
    dirty_.push_back(fill);
  } else {
    dirty_.insert_before(*dirty_.front(), fill);
  }
}

std::uint64_t Blocks::clean(const Range* range) {
  Fill* failed = failed_.front();
  Fill* dirty = dirty_.front();
  while (failed != nullptr || dirty != nullptr) {  // both in the order of their age
    const bool old = dirty == nullptr || (failed != nullptr && failed->changed < dirty->changed);
    Fill& fill = old ? *failed : *dirty;
    (old ? failed : dirty) = fill.next;
    if (!overlaps(fill, range)) continue;
    if (old) forgive(fill);
    make_due(*fill.entry);
  }
  return changes_;
}

std::size_t Blocks::take_due(std::span<Fill*> out) {
  std::size_t count = 0;
  for (Fill* fill = due_.front(); fill != nullptr && count < out.size();) {
    Fill* const next = fill->next;
    if (fill->entry->written == 0) {
      due_.remove(*fill);
      writing_.push_back(*fill);
      fill->due = false;
      fill->entry->cleaning = 1;
      ++shard_.signals.running;
      out[count++] = fill;
    }
    fill = next;
  }
  if (count < out.size()) shard_.signals.clean_due = false;
  return count;
}

void Blocks::end_clean(CacheEntry& entry, const Error* why) {
  Fill& fill = *entry.fill;
  Space::Node& node = shard_.space.node(entry.node);
  writing_.remove(fill);
  entry.cleaning = 0;
  node.leaving -= entry.length;
  if (why == nullptr) {
    entry.dirty = 0;
    node.dirty -= entry.length;
    ++counts.written_back;
    retry_after_ = kFirstRetry;
    files.wrote(entry.id);
    const bool for_space = fill.for_space;
    entries_.give_fill(entry);
    if (for_space) {
      shard_.space.offer(entry);
    } else if (entry.visited) {
      shard_.chain.promote_soon(entry);  // its hits were writes
    }
  } else {
    ++counts.write_failures;
    enlist(fill);
    const Nanoseconds now = shard_.mover.clock().now();
    if (now >= retry_at_) {  // else it belongs to a failure before
      retry_at_ = now + retry_after_;
      retry_after_ = std::min(2 * retry_after_, kLongestRetry);
    }
    try {
      fill.error = *why;
    } catch (const std::bad_alloc&) {
      fill.error = out_of_memory().error();
    }
  }
  changed();
  shard_.space.fit_budget_by(entry.node, &entry);
  shard_.space.released();
}

// Into the place of its age, which is usually the last.
void Blocks::enlist(Fill& fill) {
  Fill* before = failed_.back();
  while (before != nullptr && before->changed > fill.changed) before = before->previous;
  Fill* const after = before == nullptr ? failed_.front() : before->next;
  if (after == nullptr) {
    failed_.push_back(fill);
  } else {
    failed_.insert_before(*after, fill);
  }
}

Blocks::Dirty Blocks::dirty(const Range* range, std::uint64_t last) const {
  Dirty found;
  for (const FillList* list : {&due_, &writing_}) {
    for (const Fill* fill = list->front(); fill != nullptr; fill = fill->next) {
      if (fill->changed > last || !overlaps(*fill, range)) continue;
      ++(fill->entry->written != 0 ? found.held : found.waiting);
    }
  }
  for (const Fill* fill = failed_.front(); fill != nullptr && fill->changed <= last;
       fill = fill->next) {
    if (!overlaps(*fill, range)) continue;
    if (++found.failed == 1) found.error = &*fill->error;
  }
  return found;
}

bool Blocks::discard(const Range* range) {
  bool all = true;
  for (const Fill* fill = writing_.front(); fill != nullptr; fill = fill->next) {
    all = all && !overlaps(*fill, range);
  }
  for (FillList* list : {&dirty_, &due_, &failed_}) {
    for (Fill* fill = list->front(); fill != nullptr;) {
      Fill* const next = fill->next;
      CacheEntry& entry = *fill->entry;
      if (overlaps(*fill, range) && entry.written != 0) all = false;
      if (overlaps(*fill, range) && entry.written == 0) {
        Space::Node& node = shard_.space.node(entry.node);
        list->remove(*fill);
        if (fill->due) node.leaving -= entry.length;
        node.dirty -= entry.length;
        entry.dirty = 0;
        entries_.give_fill(entry);
        drop(entry, CacheEvent::Kind::invalidated);
      }
      fill = next;
    }
  }
  if (range != nullptr) {
    shard_.hits.index.visit_overlapping(
        *range, [&](const CacheEntry& entry) { return all = all && entry.written == 0; });
  }
  shard_.space.released();
  changed();
  return all;
}

void WrittenFiles::note(const File& file) {
  for (const Written& one : written_) {
    if (one.id == file.id()) return;
  }
  written_.push_back({.file = &file, .id = file.id()});
}

void WrittenFiles::wrote(ObjectId object) {
  for (Written& one : written_) one.unsynced = one.unsynced || one.id == object;
}

void WrittenFiles::take_unsynced(const std::function<void(const File&)>& take) {
  for (Written& one : written_) {
    if (!one.unsynced) continue;
    take(*one.file);
    one.unsynced = false;
  }
}

void WrittenFiles::forget(ObjectId object) {
  std::erase_if(written_, [object](const Written& one) { return one.id == object; });
}

void WrittenFiles::add_unsynced(std::vector<ObjectId>& objects) const {
  for (const Written& one : written_) {
    if (one.unsynced) objects.push_back(one.id);
  }
}

const File* Writes::file_of(const Extent& extent) const {
  const Object& object = *extent.object;
  if (object.memory() != nullptr || object.device_address()) return nullptr;
  if (object.user_source() != nullptr) return nullptr;
  const Node* const node = state_.mover.machine().find(object.node());
  if (node == nullptr || node->kind != NodeKind::storage) return nullptr;
  return static_cast<const File*>(&object);
}

std::optional<Error> Writes::refusal(const Extent& extent) const {
  if (!state_.options.writable) {
    return fail(ErrorCode::invalid, "the cache is read-only; create it with `writable`").error();
  }
  if (!extent.valid()) return std::nullopt;
  if (extent.object->user_source() != nullptr) {
    return fail(ErrorCode::denied, "a user source is read-only; write to what it reads from")
        .error();
  }
  if (const File* const file = file_of(extent); file != nullptr && !file->writable()) {
    return fail(ErrorCode::denied, "{} was opened for reading; open it with `writable`",
                file->quoted())
        .error();
  }
  return std::nullopt;
}

void Writes::start_all() noexcept {
  std::array<Fill*, kMost> fills{};
  for (;;) {
    std::size_t count = 0;
    {
      const MutexLock lock(state_.mutex);
      count = state_.blocks.take_due(fills);
    }
    if (count == 0) return;
    submit(std::span(fills).first(count));
  }
}

// The blocks stay where they are, and nobody writes them, until ended() has run for each.
void Writes::submit(std::span<Fill*> fills) noexcept {
  std::size_t count = 0;
  for (Fill* fill : fills) {
    CacheEntry& entry = *fill->entry;
    Status may;
    if (state_.options.before_write_back) {
      may = state_.options.before_write_back(entry.extent(), {entry.bytes(), entry.length});
    }
    if (may) {
      fills[count++] = fill;
    } else {
      fills_.written_back(entry, &may.error());
    }
  }
  fills = fills.first(count);
  std::array<Transfer, kMost> transfers;
  try {
    const MoveOptions options{
        .priority = Priority::demand, .hint = CopyHint::automatic, .route = state_.options.route};
    std::array<MovePair, kMost> pairs;
    for (std::size_t i = 0; i < count; ++i) pairs[i] = {fills[i]->entry->extent(), fills[i]->to};
    state_.mover.copy(std::span(pairs).first(count), std::span(transfers).first(count), options);
  } catch (const std::bad_alloc&) {
    const Error why = out_of_memory().error();
    for (const Fill* fill : fills) fills_.written_back(*fill->entry, &why);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    // Two pointers and the first callback of the transfer: allocates nothing (mover.h).
    transfers[i].on_done([this, &entry = *fills[i]->entry](const Result<MoveStats>& outcome) {
      fills_.written_back(entry, outcome ? nullptr : &outcome.error());
    });
  }
}

void Writes::wait(std::uint32_t seen, Patience& patience, Backoff& naps) {
  start_due();
  state_.mover.poll();
  patience.sleep(state_.signals.space_changes, seen, naps.next());
}

Status Writes::write_back(const Range* range, Patience& patience, const std::function<bool()>* stop,
                          bool held_too) {
  Backoff naps(kFirstSleep, kLongestSleep);
  std::uint64_t last = 0;
  {
    const MutexLock lock(state_.mutex);
    last = state_.blocks.clean(range);
  }
  for (;;) {
    start_due();
    Blocks::Dirty left;
    std::uint32_t seen = 0;
    {
      const MutexLock lock(state_.mutex);
      left = state_.blocks.dirty(range, last);
      if (held_too) left.waiting += left.held;
      if (left.waiting == 0 && left.failed > 0) {
        return fail(left.error->code,
                    "{} changed blocks could not be written back and stay in the cache: {}; "
                    "remove the cause and call it again",
                    left.failed, left.error->message);
      }
      if (left.waiting == 0) return {};
      if (state_.mover.in_callback()) return fail(ErrorCode::invalid, kInCallback, "write_back()");
      seen = state_.signals.space_changes.load();
      state_.blocks.await();
    }
    if (stop != nullptr && (*stop)()) {
      return fail(ErrorCode::cancelled, "the wait for write-backs was stopped; they go on");
    }
    if (patience.over()) {
      return fail(ErrorCode::timed_out,
                  "{} changed blocks are held for writing or on their way; release Blocks and call "
                  "it again",
                  left.waiting);
    }
    wait(seen, patience, naps);
  }
}

void Writes::report_lost() const noexcept try {
  const MutexLock lock(state_.mutex);
  std::uint64_t bytes = 0;
  for (const Space::Node& node : state_.space.nodes()) bytes += node.dirty;
  const CacheEntry* const oldest = state_.blocks.oldest_dirty();
  if (oldest == nullptr) return;
  const File* const file = file_of(oldest->extent());
  const std::string line = fmt::format(
      "headrace: a cache ended, and {} of changes are lost, the oldest of {}: {}\n",
      to_string(Bytes{bytes}),
      file != nullptr ? file->quoted()
                      : fmt::format("memory of node {}", raw(oldest->object->node())),
      oldest->fill->error ? oldest->fill->error->message : "they were not written back in time");
  (void)std::fputs(line.c_str(), stderr);  // fmt::print() throws if stderr is closed
} catch (const std::bad_alloc&) {
}

Status Writes::discard(const Range& range, Patience& patience) {
  Backoff naps(kFirstSleep, kLongestSleep);
  for (;;) {
    std::uint32_t seen = 0;
    {
      const Locked lock(state_);
      if (state_.blocks.discard(&range)) return {};
      if (state_.mover.in_callback()) return fail(ErrorCode::invalid, kInCallback, "discard()");
      seen = state_.signals.space_changes.load();
      state_.blocks.await();
    }
    if (patience.over()) {
      return fail(ErrorCode::timed_out,
                  "a block is held for writing or being written back; release Blocks and call it "
                  "again");
    }
    wait(seen, patience, naps);
  }
}

void Writes::clean_node(std::uint16_t number) {
  {
    const MutexLock lock(state_.mutex);
    const Space::Node& node = state_.space.node(number);
    while (node.used > node.budget && node.used - node.leaving > node.budget) {
      const std::uint64_t before = node.leaving;
      (void)state_.blocks.clean_some(number);
      if (node.leaving == before) break;
    }
  }
  start_due();
}

std::optional<Range> inside(const Extent& extent) {
  if (extent.object == nullptr || extent.offset >= extent.object->size().value) return {};
  const std::uint64_t length =
      std::min(extent.length.value, extent.object->size().value - extent.offset);
  if (length == 0) return {};
  return Range{extent.object->id(), extent.offset, length};
}

Status CacheCore::discard(const Extent& extent, Patience& patience) {
  HEADRACE_TRY_STATUS(state_.origin.check(kTheCache));
  const auto range = inside(extent);
  return range ? writes_.discard(*range, patience) : Status{};
}

Status CacheCore::write_back(const WriteBackOptions& options, Patience& patience) {
  const auto range = options.extent ? inside(*options.extent) : std::nullopt;
  if (options.extent && !range) return {};
  return writes_.write_back(range ? &*range : nullptr, patience, options.stop, true);
}

void Writes::all_back() {
  if (!state_.options.writable) return;
  Patience patience(state_.mover.clock(), state_.mover.waiting(), kShutdownBound);
  (void)write_back(nullptr, patience, nullptr, false);
}

void CacheCore::use_files(const std::function<void(WrittenFiles&)>& then) {
  const MutexLock lock(state_.mutex);
  then(state_.blocks.files);
}

void CacheCore::end_write(CacheEntry& entry, bool wrote) {
  if (!state_.origin.here()) return;
  {
    const Locked lock(state_);
    state_.blocks.end_write(entry, wrote);
  }
  // The owner of a log may hold a lock of its own here.
  if (!state_.options.before_write_back) writes_.start_due();
  pump_.pump_if_due(false);
}

Error Writes::held_elsewhere(const Extent& extent) {
  return fail(ErrorCode::timed_out,
              "{} at offset {} are held by another Block, or on their way to the source; release "
              "it, or raise `lock_timeout`",
              to_string(extent.length), extent.offset)
      .error();
}

Error Writes::overlaps_changed(const Extent& extent) {
  return fail(ErrorCode::invalid,
              "the {} at offset {} overlap changed blocks of other ranges; write an object in "
              "pieces that are equal or apart, or write_back() it first",
              to_string(extent.length), extent.offset)
      .error();
}

Error Writes::cannot_go_back(const Extent& extent, const Error& why) {
  return fail(why.code,
              "changed blocks in the way of {} at offset {} could not be written back: {}; "
              "remove the cause and call write_back()",
              to_string(extent.length), extent.offset, why.message)
      .error();
}

}  // namespace headrace
