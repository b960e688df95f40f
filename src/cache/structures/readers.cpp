// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/readers.h"

#include <algorithm>
#include <bit>

#include "core/fork.h"

namespace headrace {

thread_local constinit std::array<LastReader, kLastReaders> last_readers{};

namespace {

// The ids of the existing caches, so that an ending thread knows whether a reader still exists.
// Never freed: threads may end after the last destructor of the program.
GlobalMutex caches_mutex(kRankOfReaders);
constinit std::vector<std::uint64_t>* caches = nullptr;
constinit std::atomic<std::uint64_t> next_id{1};
thread_local constinit bool thread_ends = false;

// Free slots that a reader of an ended thread must have to be used by another thread.
constexpr std::size_t kLeastFree = Reader::kSlots / 2;

bool exists(const LastReader& one) {
  return std::ranges::find(*caches, one.cache) != caches->end();
}

// The readers of a thread in all its caches. When the thread ends, other threads may use them.
struct Joined {
  ~Joined() {
    thread_ends = true;
    last_readers = {};
    const MutexLock lock(caches_mutex);
    for (const LastReader& one : all) {
      // Release: pairs with the acquire of join().
      if (exists(one)) one.reader->owner.store(nullptr, std::memory_order_release);
    }
  }
  std::vector<LastReader> all;
};
thread_local Joined joined;

}  // namespace

Readers::Readers() : id_(next_id.fetch_add(1)), fences_(prepare_asymmetric_fence()) {
  const MutexLock lock(caches_mutex);
  if (caches == nullptr) caches = new std::vector<std::uint64_t>;
  caches->push_back(id_);
}

Readers::~Readers() {
  const MutexLock lock(caches_mutex);
  std::erase(*caches, id_);
}

Reader* Readers::mine_of_several() const {
  if (thread_ends) return nullptr;
  for (const LastReader& one : joined.all) {
    if (one.cache != id_) continue;
    remember(one);
    return one.reader;
  }
  return nullptr;
}

Reader* Readers::join() {
  if (thread_ends) return nullptr;
  Reader* const reader = mine();
  return reader == nullptr ? take_one() : reader;
}

Reader* Readers::join_more() {
  if (thread_ends) return nullptr;
  std::size_t readers = 0;
  for (const LastReader& one : joined.all) {
    if (one.cache != id_) continue;
    ++readers;
    if (one.reader->free_slot() == nullptr) continue;
    remember(one);
    return one.reader;
  }
  return readers < kMostOfThread ? take_one() : nullptr;
}

Reader* Readers::take_one() {
  Reader* reader = nullptr;
  // Blocks that were moved to other threads may still hold slots of an ended thread. If each such
  // reader were replaced by a new one, readers_ would grow with the Blocks.
  std::size_t most = kLeastFree - 1;
  for (const auto& one : readers_) {
    // Acquire: pairs with the end of its thread, after its writes to the slots.
    if (one->owner.load(std::memory_order_acquire) != nullptr) continue;
    if (const std::size_t free = one->free_slots(); free > most) {
      most = free;
      reader = one.get();
    }
  }
  if (reader == nullptr) {
    readers_.push_back(std::make_unique<Reader>());
    reader = readers_.back().get();
    reader->ask(asked_);
  }
  // Removes readers of destroyed caches, since a thread may use any number of caches: now and then,
  // since a look at all costs as many looks at all caches.
  if (std::has_single_bit(joined.all.size())) {
    const MutexLock lock(caches_mutex);
    std::erase_if(joined.all, [](const LastReader& one) { return !exists(one); });
  }
  joined.all.push_back({.cache = id_, .reader = reader});
  remember(joined.all.back());
  reader->owner.store(this_thread_mark());
  return reader;
}

bool Readers::unpin_asked(PinSlot& slot) {
  Reader& reader = Reader::of(slot);
  const std::uint32_t bit = reader.bit(slot);
  return (reader.marks.fetch_and(~bit) & bit) != 0;
}

bool Readers::unpin_elsewhere(PinSlot& slot) {
  const bool counted = unpin_asked(slot);
  slot.store(nullptr, std::memory_order_release);  // pairs with free_slot()
  return counted;
}

void Readers::ask_all(bool asked) {
  asked_ = asked;
  for (const auto& reader : readers_) reader->ask(asked);
}

std::vector<CacheEntry*> Readers::pinned() const {
  std::vector<CacheEntry*> entries;
  for (const auto& reader : readers_) {
    for (const PinSlot& slot : reader->slots) {
      CacheEntry* const entry = slot.load();
      if (entry != nullptr && !reader->is_marked(slot)) entries.push_back(entry);
    }
  }
  return entries;
}

const CacheEntry* Readers::any_pinned() const {
  for (const auto& reader : readers_) {
    for (const PinSlot& slot : reader->slots) {
      if (const CacheEntry* const entry = slot.load()) return entry;
    }
  }
  return nullptr;
}

std::uint64_t Readers::hits() const {
  std::uint64_t sum = 0;
  for (const auto& reader : readers_) sum += reader->hits;
  return sum;
}

}  // namespace headrace
