// SPDX-License-Identifier: Apache-2.0
// A prefetch plan: the extents in the order of their planned use, and how far ahead of the use to
// fetch. It starts no copies.
//
// States of an item:
// - pending: not started.
// - started: its block is ready or in flight, and protected.
// - over: used, passed over or given up.
//
// Built by one thread before the cache knows it; then guarded by the cache's lock. Work on many
// items is done in slices of kSlice, so that no plan holds the lock for long.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/plans/steps.h"
#include "cache/structures/destinations.h"
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
  std::size_t number = 0;
  std::uint64_t position = 0;        // bytes planned before it
  ChainLink<PlanItem> next_in_cell;  // of the index
  PlanItem* repeat = nullptr;        // the next item of the plan with the same bytes
  PrefetchPlan* plan = nullptr;
  CacheEntry* entry = nullptr;  // that it protects; set while started
  std::uint16_t node = 0;       // index of the node in the cache
  State state = State::pending;
  bool indexed : 1 = false;
  bool alone : 1 = false;    // not fetched with its neighbours, since that failed
  std::uint32_t around = 0;  // bytes of its block that it protects besides its own

  Range range() const { return bytes; }
  Extent extent() const { return {object, bytes.offset, Bytes{bytes.length}}; }
  std::uint64_t end_position() const { return position + bytes.length; }
};

// Items by their number. Those at the front that are over are forgotten.
class PlanItems {
 public:
  // Numbers of the items that are there: from begin() to before end().
  std::size_t begin() const { return begin_; }
  std::size_t end() const { return end_; }
  PlanItem& operator[](std::size_t number) {
    return chunks_[number / kChunk - begin_ / kChunk][number % kChunk];
  }
  const PlanItem& operator[](std::size_t number) const {
    return chunks_[number / kChunk - begin_ / kChunk][number % kChunk];
  }
  // Throws bad_alloc.
  PlanItem& add();
  void forget_before(std::size_t number);

 private:
  static constexpr std::size_t kChunk = 32;

  std::deque<std::unique_ptr<PlanItem[]>> chunks_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// How fast a consumer uses bytes: a decaying mean, which follows a change within about kSteps
// steps. A step lasts at least a given time and has at least one use. Otherwise uses in bursts,
// such as the pages of a long block, would make it forget the pauses between them. Bytes and time
// are summed and decayed separately: in a mean of rates, one short gap between two uses would
// outweigh many long ones. The time after the first use is not counted: it waited for its copy.
class Pace {
 public:
  static constexpr int kSteps = 16;
  void record(Nanoseconds now, std::uint64_t bytes, Nanoseconds step);
  // Nothing before three uses at different times.
  std::optional<BytesPerSecond> rate() const;

 private:
  std::optional<Nanoseconds> last_;
  bool begun_ = false;  // the first time is over
  double bytes_ = 0;
  double seconds_ = 0;
  Nanoseconds in_step_{0};
};

struct PrefetchPlan {
  // Most items handled under the lock at once: about 0.1 ms.
  static constexpr std::size_t kSlice = 1024;
  // Most items that steps make ahead of the oldest one that is not over.
  static constexpr std::size_t kMade = 16384;
  static constexpr std::uint64_t kNow = ~std::uint64_t{0};  // of starts_at: nothing is held

  // Null before the cache knows the plan and after its end: then no other thread writes to it.
  std::atomic<CacheCore*> core{nullptr};
  PlanItems items;
  // Extents after the last item. They become items when the consumer comes near, or jumps there.
  Steps steps;
  RangeIndex<PlanItem> index;  // items not over; the first of equal ones
  PrefetchOptions options;
  bool listed = false;  // blocks that were cached before report their uses
  bool ended = false;

  std::size_t next = 0;         // no item before it is pending
  std::size_t oldest = 0;       // all items before it are over
  std::size_t started_end = 0;  // no item from it on is started
  std::uint64_t ahead = 0;      // bytes of started items
  std::uint64_t around = 0;     // bytes around them, in their blocks
  std::uint64_t furthest = 0;   // end position of the furthest item used
  std::uint64_t begin = 0;      // position to which the consumer jumped; items before are over
  // The pending item that the limit keeps from starting, with how many bytes it would start, and at
  // how many bytes ahead it may.
  std::size_t held = ~std::size_t{0};
  std::uint64_t held_run = 0;
  std::uint64_t starts_at = kNow;
  bool skipped = false;  // some items were neither started nor used
  bool named = false;    // an access named it: only such accesses are uses of it
  // Starts nothing until its next use: all is over, or its consumer paused and others took its
  // bytes.
  bool idle = false;
  Nanoseconds touched{0};  // when an item was last used or started
  Pace pace;
  Prefetch::Progress progress;

  // Whether an access without a plan that found `item` came from the plan's consumer. An access far
  // ahead of the furthest use does not, until kJump such accesses in succession continue each
  // other: then the consumer has jumped. Repeated lookups of one item do not continue each other.
  bool is_consumers(std::uint64_t position, std::uint64_t length, std::uint64_t window);

  // Makes items of the extents, the index of the pending ones, and counts their objects. Of items
  // with the same bytes, only the first that is not over is in the index, so that an access need
  // not see all.
  void build(std::span<const Extent> extents, const Destinations& destinations);
  // Whether an item of the plan overlaps `range`.
  bool concerns(const Range& range) const;
  // The time until its consumer uses a block of `range`, at its pace, or at 1 GB/s without one.
  // Nothing: no item inside the range is left. Looks only at the first ones of the index.
  std::optional<Nanoseconds> next_use(const Range& range, Nanoseconds now) const;
  // The items that an access to `range` may use, in their order: those that contain it or lie
  // inside it. If it has more than kSlice cells of the index: only from the next kSlice items.
  // Valid until the next call.
  std::span<PlanItem* const> concerned(const Range& range);
  // Removes `item` from the index and the count of its object. The next item with the same bytes
  // takes its place in the index.
  void remove(PlanItem& item);
  // The first pending item; null: none is among the next `effort` items. Counts `effort` down.
  PlanItem* first_pending(std::size_t& effort);
  // Lowers started_end to its true value and returns it.
  std::size_t furthest_started();
  // Items not over, and one if steps will make more.
  std::size_t left() const { return left_ + (steps.done() ? 0 : 1); }
  // Begins a plan of steps, on a node of the cache.
  void begin_steps(Steps all, std::uint16_t node);
  std::uint16_t steps_node() const { return steps_node_; }
  // Makes the items up to `window` bytes beyond the furthest use. Counts `effort` down. Throws
  // bad_alloc.
  void make_items(std::uint64_t window, std::size_t& effort);
  // Before the use of a range: makes the items that it contains or that contain it, if steps have
  // not yet. False: the access is no use of the plan (is_consumers()).
  bool reach(const Range& range, std::uint64_t window);
  // Whether `run` bytes of `item` and its neighbours exceed the limit; then it is held.
  bool holds(const PlanItem& item, std::uint64_t run, std::uint64_t most);
  // The objects that it has yet to read.
  std::vector<ObjectId> reading() const;
  // Whether the pace of the consumer is known, and it has not paused.
  bool is_paced(Nanoseconds now) const { return pace.rate() && !is_stalled(now); }
  // Whether the consumer has paused: for a second, and for the time in which it uses up `ahead`.
  bool is_stalled(Nanoseconds now) const;
  // Most bytes that may be started and not over, when a copy takes `latency`. These are the bytes
  // used in the lead time or in two latencies at the measured pace, but at least two extents like
  // `item`, so that one is fetched while another is used, and at most `most`. Without a measured
  // pace: `most`.
  std::uint64_t limit(const PlanItem& item, Nanoseconds latency, std::uint64_t most) const;

 private:
  static constexpr unsigned kJump = 16;

  void add(std::span<const Extent> extents, const Destinations& destinations);
  void make_item();

  // Bounds of all items if they are of one object.
  Range bounds_;
  std::vector<PlanItem*> concerned_;  // keeps its memory: an access allocates nothing
  // Items not over by object, ascending.
  std::vector<std::pair<ObjectId, std::size_t>> objects_;
  std::size_t left_ = 0;
  std::uint16_t steps_node_ = 0;  // of the items that steps make

  std::uint64_t far_end_ = 0;  // end position of the last access far ahead
  unsigned far_ = 0;           // accesses far ahead in succession that continued each other
};

}  // namespace headrace
