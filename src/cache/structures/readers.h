// SPDX-License-Identifier: Apache-2.0
// Pins that take no lock. Each thread has a few slots. A thread that is about to drop blocks reads
// all slots first.
//
// An entry is *open* while its word is exactly BlockState::ready. Only an open entry may be pinned
// in this way. Pins of other entries are taken and counted under the cache's lock.
//
// A thread pins:                             The lock's holder drops:
//   P1 slot = entry                            D1 word = ready | counted
//   P2 light fence                             D2 heavy fence
//   P3 word == ready? else slot = null, lock   D3 slot == entry? then it is marked
//   P4 key as wanted? else slot = null         D4 any marked? then a heavy fence
// It releases:                                 D5 marked: slot == entry still? then it is
//   L1 slot = null                                counted in entry.pins, else marked no longer
//   L2 light fence                             D6 entry.pins == 0: frame and entry are free
//   L3 marked? then, under the lock: marked
//      still? not any longer, and pins - 1
//
// 1. No pin is missed between D1 and the end of D6: because of the fences, D3 sees the slot of
//    P1, or P3 sees the word of D1. After a pin has passed P3, its entry is neither freed nor used
//    for other bytes until L1: either takes D1 to D6, and D3 finds the slot.
// 2. No counted pin stays: because of the fence of D4, D5 sees the null of L1, or L3 sees the mark
//    of D3. If both are seen, D5 removes the mark before L3 has the lock, and nothing was counted.
//    Only the release of a marked pin takes the lock.
// 3. Entries are not returned to the allocator while the cache lives, so P3 and P4 may read an
//    entry that has become another block. Its word is ready again only after the new key is
//    written (release; P3 acquires). A thread that sees the new word and key has pinned the new
//    block.
// 4. The bytes: a frame is written again only after D5. D5 or D3 acquires the null that L1
//    released.
// 5. Only its thread sets a slot, and only its thread clears it without the lock. A Block that was
//    moved to another thread is released under the lock. So a slot that is marked after D5 holds
//    the counted entry until L3 is done.
// 6. A victim is chosen (D1 to D5) long before D6 and may be hit meanwhile. At P3 the thread sees
//    *victim*, makes the entry open by a compare-and-swap, and repeats P3 and P4. D6 begins with a
//    compare-and-swap from victim to counted; if that fails, everything begins again at D1. So
//    either the hit is first, and D3 finds its slot, or D6 is first, and P3 fails. D2 may be done
//    without the lock: until D5, a thread that needs the block begins again at D1.
//
// Without a heavy fence (asymmetric_fence.h), P1 and L1 are sequentially consistent exchanges, and
// the fences do nothing.
//
// Thread-safe where a function says so.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/structures/asymmetric_fence.h"
#include "cache/structures/relaxed.h"

namespace headrace {

struct CacheEntry;

// A slot holds the entry that a Block pins, or null.
using PinSlot = std::atomic<CacheEntry*>;

// The slots of one thread for one cache. Aligned so that the address of a slot gives its reader.
struct alignas(256) Reader {
  static constexpr std::size_t kSlots = 16;

  std::array<PinSlot, kSlots> slots{};
  // Written by its thread only.
  Relaxed<std::uint64_t> hits{0};
  // On a line that others write seldom. Bit i: slot i is marked; and kAsked. Changed under the
  // cache's lock.
  alignas(64) std::atomic<std::uint32_t> marks{0};
  std::uint32_t marked_now = 0;             // by D3; guarded by the cache's lock
  std::atomic<const void*> owner{nullptr};  // this_thread_mark(); null: its thread has ended

  // Every release takes the lock, because a thread waits for space.
  static constexpr std::uint32_t kAsked = 1U << kSlots;

  static Reader& of(const PinSlot& slot) {
    return *reinterpret_cast<Reader*>(reinterpret_cast<std::uintptr_t>(&slot) &
                                      ~(alignof(Reader) - 1));
  }
  std::uint32_t bit(const PinSlot& slot) const { return 1U << (&slot - slots.data()); }
  bool is_marked(const PinSlot& slot) const { return (marks.load() & bit(slot)) != 0; }
  void ask(bool asked) {
    if (asked) {
      marks.fetch_or(kAsked);
    } else {
      marks.fetch_and(~kAsked);
    }
  }
  // For its thread; for the lock's holder once its thread has ended.
  std::size_t free_slots() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(slots, [](const PinSlot& slot) { return slot.load() == nullptr; }));
  }
  // Null: all are taken. For its thread.
  PinSlot* free_slot() {
    // Another thread may have cleared it, under the lock; acquire pairs with its release.
    if (slots[0].load(std::memory_order_acquire) == nullptr) [[likely]]
      return &slots[0];
    for (PinSlot& slot : slots) {
      if (slot.load(std::memory_order_acquire) == nullptr) return &slot;
    }
    return nullptr;
  }
};
static_assert(sizeof(Reader) == 256);

// The readers that this thread used last, by the last bits of their cache's id, so that the next
// access finds its own at once. There is space for 256 caches, or shards of one. The TLS model is
// not initial-exec, which would save a call in a shared library: a module that is loaded late, such
// as an extension of Python, may find no space for it.
struct LastReader {
  std::uint64_t cache = 0;  // Readers::id()
  Reader* reader = nullptr;
};
inline constexpr std::size_t kLastReaders = 256;
extern thread_local constinit std::array<LastReader, kLastReaders> last_readers;

// An address that no other living thread has.
inline const void* this_thread_mark() { return __builtin_thread_pointer(); }

// All readers of one cache.
class Readers {
 public:
  Readers();
  ~Readers();
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // This thread's reader; null: it has none yet. Thread-safe.
  Reader* mine() const {
    if (Reader* const reader = last()) return reader;
    return mine_of_several();
  }
  // Like mine(), but null if another cache took its place in last_readers. Thread-safe.
  Reader* last() const {
    const LastReader& last = last_readers[id_ % kLastReaders];
    return last.cache == id_ ? last.reader : nullptr;
  }
  // Makes a reader for this thread, unless it has one. Null: the thread is about to end. Requires:
  // the cache's lock.
  Reader* join();
  // For a thread whose slots are all taken: another of its readers that has a free slot, or a new
  // one. Null: it has kMostOfThread readers, or is about to end. Requires: the cache's lock.
  static constexpr std::size_t kMostOfThread = 8;
  Reader* join_more();

  // P1 and P2. Thread-safe.
  void pin(PinSlot& slot, CacheEntry& entry) const {
    if (fences_) {
      slot.store(&entry, std::memory_order_release);  // pairs with the loads of count()
      light_fence();
    } else {
      slot.exchange(&entry);
    }
  }
  // Whether this thread may release the slot without the lock. Thread-safe.
  static bool own(const PinSlot& slot) {
    // Pairs with nothing: a thread sees its own writes, and another thread's mark differs from its
    // own.
    return Reader::of(slot).owner.load(std::memory_order_relaxed) == this_thread_mark();
  }
  // L1 to L3. False: call unpin_asked() under the lock. For its thread.
  bool unpin(PinSlot& slot) const {
    if (fences_) {
      slot.store(nullptr, std::memory_order_release);  // pairs with the loads of count()
      light_fence();
    } else {
      slot.exchange(nullptr);
    }
    const Reader& reader = Reader::of(slot);
    const std::uint32_t marks = reader.marks.load();
    if (marks == 0) return true;  // the most frequent case
    return (marks & (Reader::kAsked | reader.bit(slot))) == 0;
  }

  // For the holder of the cache's lock:

  // D2. Needs no lock.
  void fence() const {
    if (fences_) heavy_fence();
  }
  // Steps D3 to D5, after D2. Calls count(entry) once for each slot that pins an entry for which
  // `wanted(entry)` is true.
  template <class Wanted, class Count>
  void count(const Wanted& wanted, const Count& count) {
    if (!mark(wanted)) return;
    fence();
    for (const auto& reader : readers_) {
      for (PinSlot& slot : reader->slots) {
        const std::uint32_t bit = reader->bit(slot);
        if ((reader->marked_now & bit) == 0) continue;
        CacheEntry* const entry = slot.load();
        if (entry != nullptr && wanted(*entry)) {
          count(*entry);
        } else {
          reader->marks.fetch_and(~bit);
        }
      }
    }
  }
  // The rest of L3. True: the pin was counted, and the caller subtracts it.
  bool unpin_asked(PinSlot& slot);
  // The whole release of a Block that was moved to another thread. Returns the same as
  // unpin_asked().
  bool unpin_elsewhere(PinSlot& slot);
  // Sets whether every release of every thread takes the lock.
  void ask_all(bool asked);
  // Entries pinned by slots and not counted, once per slot.
  std::vector<CacheEntry*> pinned() const;
  // An entry that a slot pins, counted or not; null: none.
  const CacheEntry* any_pinned() const;
  std::uint64_t hits() const;

 private:
  Reader* mine_of_several() const;
  void remember(const LastReader& one) const { last_readers[id_ % kLastReaders] = one; }
  Reader* take_one();
  // D3. False: no slot was marked.
  template <class Wanted>
  bool mark(const Wanted& wanted) {
    bool any = false;
    for (const auto& reader : readers_) {
      std::uint32_t found = 0;
      for (const PinSlot& slot : reader->slots) {
        const CacheEntry* const entry = slot.load();
        if (entry == nullptr || reader->is_marked(slot) || !wanted(*entry)) continue;
        found |= reader->bit(slot);
      }
      // Written only if it changes: each release of a pin reads the line.
      if (reader->marked_now != found) reader->marked_now = found;
      if (found == 0) continue;
      reader->marks.fetch_or(found);
      any = true;
    }
    return any;
  }

  const std::uint64_t id_;  // never used twice
  const bool fences_;
  // On another cache line than the fields that hits read.
  alignas(64) bool asked_ = false;
  std::vector<std::unique_ptr<Reader>> readers_;
};

}  // namespace headrace
