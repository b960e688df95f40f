// SPDX-License-Identifier: Apache-2.0
// Decides which pieces of which moves are submitted next: which segments wait at which engine, and
// what is in flight on each link. Pure: submits nothing, waits for nothing, takes no lock. Only
// link() and open() allocate what they cannot do without, and change nothing when they throw.
//
// Rules:
//  1. A piece is taken when its engine takes more (fewer in flight than its max_in_flight, and it
//     did not refuse since its last completion) and its link does (bytes in flight + piece <=
//     bound, or nothing in flight).
//  2. Among what the engines take, a link serves a class that is due before demand before prefetch
//     before migration. A lower class is due when it waited while kTurn - 1 pieces
//     of other classes were taken on its link or its engine. If the piece so chosen does not fit
//     into the bound, the link waits: smaller pieces do not slip past it for ever.
//  3. A piece that its engine copies inline is taken only by who may copy. If it is next on its
//     link and whoever takes may not, the link waits as in rule 2, and left() tells.
//  4. An engine of storage serves what it was given first: a read that somebody waits for comes
//     behind all of it. So once such an engine has been given demand, the less urgent classes wait
//     there, due or not, while they have an eighth of the bound or more in flight together; until
//     they have been given four times the bound since the last demand. What was promoted is not
//     demand in this: a plan that is late would hold itself back.
//  5. Among equals the engine with the least in flight on the link goes first, then the one served
//     longest ago, so that the parts of a route advance together.
//
// Single-thread: guarded by the mutex of the core.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "move/transfer.h"

namespace headrace {

inline constexpr std::size_t kClasses = 3;

// How many segments of each class wait, and how many pieces of others went before them.
struct Turns {
  std::array<std::uint32_t, kClasses> waiting{};
  std::array<std::uint32_t, kClasses> passed{};
};

struct EngineState {
  EngineId id{};
  Backend* backend = nullptr;      // null: nobody drives it
  std::string why;                 // as Backends::skipped()
  std::size_t most = 0;            // pieces in flight
  std::uint64_t inline_below = 0;  // bytes: shorter pieces are copied inside submit()
  std::size_t in_flight = 0;
  std::uint64_t completions = 0;
  bool storage = false;
  std::uint64_t patient = 0;        // bytes in flight that were taken as less urgent than demand
  std::uint64_t beside_demand = 0;  // bytes of such that are still to be taken sparingly
  bool polled = false;              // its backend does not complete by itself
  bool stalled = false;  // took fewer than offered, and nothing of it has completed since
  Turns turns;
};

struct NodePair;

// The segments of one link at one engine.
struct LinkQueue {
  NodePair* link = nullptr;
  EngineState* engine = nullptr;
  unsigned index = 0;       // in the queues of its link
  std::uint64_t piece = 0;  // largest
  std::array<SegmentList, kClasses> classes;
  std::size_t size = 0;         // segments of all classes
  std::uint64_t in_flight = 0;  // bytes
  std::uint64_t served = 0;     // when a piece was last taken; counts takes
  bool active = false;
};

// A pair of nodes.
struct NodePair {
  NodeId from{};
  NodeId to{};
  std::vector<std::unique_ptr<LinkQueue>> queues;  // of the engines that can, those with a backend
  std::uint64_t in_flight = 0;                     // bytes
  std::uint64_t bound = 0;                         // of those
  Turns turns;
  std::uint64_t closed = 0;  // the number of the take() that found it full
  // Answers of the Mover's own route policy, which is pure.
  struct Answer {
    Bytes bytes;
    std::optional<Route> route;
  };
  std::array<Answer, 4> answers;
  std::size_t next_answer = 0;

  // Good until the next remember(); null: not known.
  const Route* route_for(Bytes bytes) const;
  const Route& remember(Bytes bytes, Route route) noexcept;
};

// Whether the engine of a queue copies a piece of `length` bytes inside submit().
inline bool copied_inline(const LinkQueue& queue, std::uint64_t length) {
  return length < queue.engine->inline_below;
}

// The time of one turn, read when it is first needed.
class TurnTime {
 public:
  explicit TurnTime(const Clock& clock) : clock_(&clock) {}
  TurnTime(const Clock& clock, Nanoseconds now) : clock_(&clock), now_(now) {}
  Nanoseconds now() {
    if (!now_) now_ = clock_->now();
    return *now_;
  }

 private:
  const Clock* clock_;
  std::optional<Nanoseconds> now_;
};

class MoveScheduler {
 public:
  // As MoverOptions.
  MoveScheduler(const Machine& machine, const Backends& backends, std::optional<Bytes> piece,
                std::optional<Bytes> bound);

  // std::bad_alloc: nothing was changed.
  NodePair& link(NodeId from, NodeId to);

  // Enters a move by its route. On failure (no engine of the route nor any other is open,
  // std::bad_alloc) nothing was entered.
  Status open(const std::shared_ptr<Move>& move, NodePair& link, const Route& route);
  // The engine to which a whole move by this route goes as one piece that it copies inline.
  std::optional<EngineId> inline_engine(NodePair& link, const Route& route);
  // Takes what may be submitted now, at most segments.size() and of those that are copied inline at
  // most `inline_left`, from which it subtracts them, and counts it as in flight.
  std::size_t take(std::span<Segment*> segments, std::size_t& inline_left, TurnTime& time);
  // The last take() passed over a piece only because it is copied inline.
  bool left() const { return left_; }
  // An engine did not accept it: back to the front of its queue.
  void put_back(Segment& segment);
  // The engine took fewer than offered; `seen` of the first piece it left.
  void stall(EngineState& engine, std::uint64_t seen);
  // Gives stalled engines without a piece of ours in flight another chance.
  void retry_stalled();
  // Counts the end of a piece: well unless it has a `failure`.
  void settle(Segment& segment);
  // What is queued of a move goes to the end of the queues of a more urgent class.
  void promote(Move& move, Priority priority);
  // Drops what is queued of a move.
  void cancel(Move& move);
  // The same for all moves.
  void cancel_all();
  // Linked by Move::next_open: those with segments.
  Move* first_open() const { return open_.front(); }
  // The moves that ended since it was last asked, in order, by Move::next_ended; each keeps itself
  // alive. They are forgotten here: nobody else writes to their fields.
  Move* take_ended();
  // A move that was done at once: it could not be entered (failed), or is empty.
  void count_without_work(bool failed);

  bool quiet() const { return totals_.in_flight_pieces == 0; }
  bool queued() const { return !active_.empty(); }
  // Somebody has to call poll() for things to go on.
  bool needs_poll() const;
  MoverStats stats() const;

 private:
  struct Choice {
    LinkQueue* queue = nullptr;
    std::size_t priority = 0;
    bool due = false;
  };
  LinkQueue* queue(NodePair& link, EngineId engine);
  LinkQueue* untried(NodePair& link, std::uint64_t tried);
  LinkQueue& add_queue(NodePair& link, EngineState& engine);
  Choice choose(bool inline_too);
  bool holds_back(const EngineState& engine, std::size_t priority) const;
  bool is_overdue(const LinkQueue& queue) const;
  // Null: there is no memory for it, and the move has failed.
  Segment* cut(LinkQueue& queue, std::size_t priority);
  void count_turn(LinkQueue& queue, std::size_t priority);
  void enter_flight(Segment& segment);
  void leave_flight(Segment& segment);
  void enqueue(Segment& segment, LinkQueue& queue, bool in_front);
  void dequeue(Segment& segment);
  // Sees to it that `count` segments are free. std::bad_alloc
  void reserve(std::size_t count);
  Segment& make_segment(Move& move);  // Requires: one is free
  void free_segment(Segment& segment);
  void fail_move(Move& move, Error error);
  void drop_queued(Move& move);
  void close_if_ended(Move& move);
  bool give_to_another(Segment& segment);

  const Machine& machine_;
  bool between_memories(const NodePair& link) const;
  const std::optional<Bytes> stated_piece_;
  const std::optional<Bytes> stated_bound_;
  const std::uint64_t bound_;         // of links of which no engine prefers another
  std::vector<EngineState> engines_;  // index: raw(EngineId)
  std::unordered_map<std::uint64_t, std::unique_ptr<NodePair>> links_;
  std::vector<LinkQueue*> active_;  // with segments; has capacity for all queues
  std::size_t queues_ = 0;          // of all links
  std::size_t drives_ = 0;          // engines that somebody drives
  std::deque<Segment> pool_;
  Segment* free_ = nullptr;
  std::size_t free_count_ = 0;
  IntrusiveList<Move, &Move::next_open, &Move::previous_open> open_;
  std::uint64_t takes_ = 0;
  std::size_t polled_in_flight_ = 0;
  std::size_t stalls_ = 0;  // engines that are stalled
  bool left_ = false;
  Move* first_ended_ = nullptr;
  Move* last_ended_ = nullptr;
  MoverStats totals_;
};

}  // namespace headrace
