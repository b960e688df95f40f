// SPDX-License-Identifier: Apache-2.0
// A prefetch plan: the extents in the order of their planned use, and how far ahead of the use to
// fetch. It starts no copies; the cache core does.
//
// An item is pending (not started), started (its block is there or in flight, and protected), or
// over: used, passed over or given up.
//
// Built by one thread before the cache knows of it; from then on guarded by the cache's lock. What
// is done with many items is done in slices of kSlice, so that no plan holds up anybody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
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
  std::uint64_t position = 0;        // bytes planned before it
  ChainLink<PlanItem> next_in_cell;  // of the index
  PlanItem* repeat = nullptr;        // the next of the plan with the same bytes
  PrefetchPlan* plan = nullptr;
  CacheEntry* entry = nullptr;  // that it protects; set while started
  std::uint16_t node = 0;       // index of the node in the cache
  State state = State::pending;
  bool indexed = false;
  bool alone = false;  // not to be fetched with its neighbours: that failed

  Range range() const { return bytes; }
  Extent extent() const { return {object, bytes.offset, Bytes{bytes.length}}; }
  std::uint64_t end_position() const { return position + bytes.length; }
};

// How fast a consumer uses bytes: a mean that forgets, so that it follows a change within about
// kSteps steps. A step is one use or more, and lasts: else uses in bursts, as of the pages of a
// long block, would make it forget the pauses between them. Sums of bytes and of time are decayed
// apart, since a mean of single rates would let one short gap between two uses outweigh many long
// ones.
class Pace {
 public:
  static constexpr int kSteps = 16;
  void record(Nanoseconds now, std::uint64_t bytes, Nanoseconds step);
  // Nothing before two uses that are apart in time.
  std::optional<BytesPerSecond> rate() const;

 private:
  std::optional<Nanoseconds> last_;
  double bytes_ = 0;
  double seconds_ = 0;
  Nanoseconds in_step_{0};
};

struct PrefetchPlan {
  // As many items as are dealt with under the lock at a time: at most some 0.1 ms.
  static constexpr std::size_t kSlice = 1024;

  // Null before the cache knows of it and once the plan has ended: then nobody else writes to it.
  std::atomic<CacheCore*> core{nullptr};
  std::vector<PlanItem> items;
  RangeIndex<PlanItem> index;  // items not over, of equals the first
  PrefetchOptions options;
  bool listed = false;  // what was in the cache before it knows of the plan
  bool ended = false;

  std::size_t next = 0;         // no item before it is pending
  std::size_t oldest = 0;       // all items before it are over
  std::size_t started_end = 0;  // no item from it on is started
  std::uint64_t ahead = 0;      // bytes of started items
  std::uint64_t furthest = 0;   // end position of the furthest item used
  std::uint64_t begin = 0;      // position to which the consumer jumped: what is before is over
  bool named = false;           // by an access: only those that name it are uses of it
  // It starts nothing: all is over, or its consumer paused and others took what it had, until its
  // next use.
  bool idle = false;
  Nanoseconds touched{0};  // when an item was last used or started
  Pace pace;
  Prefetch::Progress progress;

  // Whether an access that named no plan and came to `item` is the consumer's. One far ahead of the
  // furthest use is somebody else's, until kJump in succession went on from each other there: then
  // the consumer has jumped. Lookups, even of one item again and again, do not go on.
  bool is_consumers(const PlanItem& item, std::uint64_t window);

  // Builds the index of the pending items and counts their objects. Of those with the same bytes
  // only the first that is not over is in the index, so that an access need not look at all.
  void build();
  // Whether an item of the plan overlaps `range`.
  bool concerns(const Range& range) const;
  // Those that an access to `range` may use, in their order: what contains it, or lies in it. Of a
  // range with more items than kSlice those that come next.
  std::vector<PlanItem*> concerned(const Range& range);
  // Leaves the index to the next item with the same bytes, and the objects to be read.
  void remove(PlanItem& item);
  std::size_t index_of(const PlanItem& item) const {
    return static_cast<std::size_t>(&item - items.data());
  }
  // The first pending item; null: none is left among the next `effort`, which it counts down.
  PlanItem* first_pending(std::size_t& effort);
  // started_end, after looking for it.
  std::size_t furthest_started();
  std::size_t left() const { return left_; }  // items not over
  // The objects that it is going to read.
  std::vector<ObjectId> reading() const;
  // Its consumer has not come in the time in which it used up as much, nor in a second.
  bool is_stalled(Nanoseconds now) const;
  // How many bytes may be started and not over, when a copy takes `latency`: what is used up in the
  // lead time or in two latencies, at the pace seen; at least two extents like `item`, so that one
  // is fetched while another is used; at most `most`. Before there is a pace: `most`.
  std::uint64_t limit(const PlanItem& item, Nanoseconds latency, std::uint64_t most) const;

 private:
  static constexpr unsigned kJump = 16;

  // All its items lie between these; of one object if it has only one.
  Range bounds_;
  // Items not over by object, ascending.
  std::vector<std::pair<ObjectId, std::size_t>> objects_;
  std::size_t left_ = 0;

  std::uint64_t far_end_ = 0;  // end position of the last access far ahead
  unsigned far_ = 0;           // such accesses that went on from each other, and none came here
};

}  // namespace headrace
