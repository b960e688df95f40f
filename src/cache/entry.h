// What the cache knows about one block, and about its copy while that is in flight.
//
// Life of an entry: made `filling` and put into the index under the lock, before its copy is
// submitted, so that nobody copies twice; then ready or failed, set once by the end of the
// transfer. It leaves the index when it is evicted, invalidated or failed (then it is `detached`:
// no new access finds it, and what was ready is `evicting`), and is deleted when it is detached,
// unpinned and not being filled.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "cache/frames.h"
#include "cache/index.h"
#include "headrace/cache.h"
#include "headrace/eviction.h"
#include "headrace/mover.h"
#include "headrace/object.h"

namespace headrace {

// What is needed only from the start of a copy to its end (and for a failed one, as long as
// somebody may ask why).
struct Fill {
  Extent to;
  Transfer transfer;     // set once submitted
  ObjectId object{};     // that it reads
  Fill* next = nullptr;  // all that are in flight
  Fill* previous = nullptr;
  Nanoseconds started{0};
  Priority priority = Priority::demand;
  bool cancelled = false;  // nobody wants it any more
  std::optional<Error> error;
};

struct CacheEntry final : Frame, EvictionLinks {
  // These lie in the tail padding of EvictionLinks. Guarded by the cache's lock.
  std::uint8_t by_prefetch : 1 = 0;
  std::uint8_t used : 1 = 0;      // accessed at least once
  std::uint8_t detached : 1 = 0;  // not in the index
  std::uint16_t node = 0;         // index of the node in the cache
  std::uint32_t pins = 0;         // Blocks
  std::uint32_t planned = 0;      // items of plans that protect it
  // Written under the lock, waited on without it: a BlockState, and kAwaited once somebody sleeps
  // on it, so that the end of a copy makes a system call only then.
  std::atomic<std::uint32_t> state{0};
  static constexpr std::uint32_t kAwaited = 1U << 8;

  // Immutable once in the index, as are Frame::data and length while the block is ready.
  const Object* object = nullptr;  // never read through: it may be gone. For events
  ObjectId id{};
  std::uint64_t offset = 0;

  CacheEntry* next_in_cell = nullptr;  // the index's
  Fill* fill = nullptr;                // owned; while filling, and for a failed block

  CacheEntry() { state = static_cast<std::uint32_t>(BlockState::filling); }
  ~CacheEntry() { delete fill; }
  CacheEntry(const CacheEntry&) = delete;
  CacheEntry& operator=(const CacheEntry&) = delete;

  // The copy is whole, in the index or not.
  bool has_bytes() const { return now() == BlockState::ready || now() == BlockState::evicting; }
  BlockState now() const { return static_cast<BlockState>(state.load() & (kAwaited - 1)); }
  Range range() const { return {id, offset, length}; }
  Extent extent() const { return {object, offset, Bytes{length}}; }
};

// A block costs at most 128 bytes besides its own (docs/design/cache.md). The allocator rounds 104
// up to 112, the index adds 6 to 13 (index.h).
static_assert(sizeof(CacheEntry) <= 104);

}  // namespace headrace
