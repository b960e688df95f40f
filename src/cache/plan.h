// A prefetch plan: the extents in the order of their planned use, and how far ahead of the use to
// fetch. It starts no copies; the cache core does.
//
// An item is pending (not started), started (its block is there or in flight, and protected), or
// over: used, passed over or given up. Single-thread: guarded by the lock of the cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/structures/index.h"
#include "headrace/cache.h"

namespace headrace {

class CacheCore;
struct CacheEntry;
struct PrefetchPlan;

struct PlanItem {
  enum class State : std::uint8_t { pending, started, over };

  const Object* object = nullptr;
  Range bytes;
  std::uint64_t position = 0;                 // bytes planned before it
  Relaxed<PlanItem*> next_in_cell = nullptr;  // of the index
  PlanItem* repeat = nullptr;                 // the next of the plan with the same bytes
  PrefetchPlan* plan = nullptr;
  CacheEntry* entry = nullptr;  // that it protects; set while started
  std::uint16_t node = 0;       // index of the node in the cache
  State state = State::pending;
  bool indexed = false;

  Range range() const { return bytes; }
  Extent extent() const { return {object, bytes.offset, Bytes{bytes.length}}; }
  std::uint64_t end_position() const { return position + bytes.length; }
};

// How fast a consumer uses bytes: a mean that forgets, so that it follows a change within about
// kMemory uses. Sums of bytes and of time are decayed apart, since a mean of single rates would let
// one short gap between two uses outweigh many long ones.
class Pace {
 public:
  void record(Nanoseconds now, std::uint64_t bytes);
  // Nothing before two uses that are apart in time.
  std::optional<BytesPerSecond> rate() const;

 private:
  static constexpr double kMemory = 16;

  std::optional<Nanoseconds> last_;
  double bytes_ = 0;
  double seconds_ = 0;
};

struct PrefetchPlan {
  // Null before all items are listed and once the plan has ended: then nobody else writes to it.
  std::atomic<CacheCore*> core{nullptr};
  std::vector<PlanItem> items;
  PrefetchOptions options;

  std::size_t next = 0;         // no item before it is pending
  std::size_t oldest = 0;       // all items before it are over
  std::size_t started_end = 0;  // no item from it on is started
  std::uint64_t ahead = 0;      // bytes of started items
  std::uint64_t furthest = 0;   // end position of the furthest item used
  std::uint64_t begin = 0;      // position to which the consumer jumped: what is before is over
  bool named = false;           // by an access: only those that name it are uses of it
  Pace pace;
  Prefetch::Progress progress;

  // Whether an access that named no plan and came to `item` is the consumer's. One far ahead of the
  // furthest use is somebody else's, until kJump in succession went on from each other there: then
  // the consumer has jumped. Lookups, even of one item again and again, do not go on.
  bool is_consumers(const PlanItem& item, std::uint64_t window);

  // Links the pending items with the same bytes, in order, and marks the first of each as indexed:
  // only the first that is not over is in the index, so that an access need not look at all.
  void link_repeats();
  // The first pending item; null: none is left.
  PlanItem* first_pending();
  // started_end, after looking for it.
  std::size_t furthest_started();
  // How many bytes may be started and not over, when a copy takes `latency`: what is used up in the
  // lead time or in two latencies, at the pace seen; at least two extents like `item`, so that one
  // is fetched while another is used; at most `most`. Before there is a pace: `most`.
  std::uint64_t limit(const PlanItem& item, Nanoseconds latency, std::uint64_t most) const;

 private:
  static constexpr unsigned kJump = 16;

  std::uint64_t far_end_ = 0;  // end position of the last access far ahead
  unsigned far_ = 0;           // such accesses that went on from each other, and none came here
};

}  // namespace headrace
