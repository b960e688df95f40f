// SPDX-License-Identifier: Apache-2.0
// Cuts moves into pieces, and decides which pieces are submitted next. Knows the segments that wait
// at each engine and the bytes in flight on each link. Pure: submits nothing, waits for nothing,
// takes no lock. Only link() and open() need memory; they change nothing when they throw.
//
// Rules:
// 1. A piece is taken when its engine and its link both accept it. An engine accepts when fewer
//    than max_in_flight pieces are in flight and it has not refused since its last completion. A
//    link accepts when bytes in flight + piece <= bound, or nothing is in flight.
// 2. Among the pieces that engines accept, a link serves a class that is due first, then demand,
//    prefetch, migration. A lower class is due when it waited while kTurn - 1 pieces of other
//    classes were taken on its link or its engine. If the chosen piece exceeds the bound, the link
//    waits; otherwise smaller pieces would pass it forever.
// 3. A piece that its engine copies inline is taken only by a visit that may copy. If such a piece
//    is next on its link and the visit may not copy, the link waits as in rule 2, and left()
//    returns true.
// 4. A storage engine serves pieces in the order of submission, so a read with priority demand
//    waits for all pieces before it. Therefore, once such an engine has been given demand, less
//    urgent classes wait there, due or not, while an eighth of the bound or more of their bytes is
//    in flight. This ends when four times the bound of their bytes has been submitted since the
//    last demand. A promoted move does not count as demand here: a late plan would hold itself
//    back.
// 5. Among equals, the engine with the least in flight on the link goes first, then the one served
//    longest ago, so that the parts of a route advance together.
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

// For each class, how many segments wait, and how many pieces of other classes went before them.
struct Turns {
  std::array<std::uint32_t, kClasses> waiting{};
  std::array<std::uint32_t, kClasses> passed{};
};

struct EngineState {
  EngineId id{};
  Backend* backend = nullptr;      // null: no backend drives it
  std::string why;                 // the line of Backends::skipped()
  std::size_t most = 0;            // bound of in_flight, in pieces
  std::uint64_t inline_below = 0;  // bytes: shorter pieces are copied inside submit()
  std::size_t in_flight = 0;
  std::uint64_t completions = 0;
  bool storage = false;
  // Bytes in flight that were taken with less priority than demand.
  std::uint64_t patient = 0;
  std::uint64_t beside_demand = 0;  // bytes of these classes to which rule 4 still applies
  bool polled = false;              // its backend does not complete by itself
  bool stalled = false;  // it took fewer pieces than offered, and none has completed since
  Turns turns;
};

struct NodePair;

// The segments of one link at one engine.
struct LinkQueue {
  NodePair* link = nullptr;
  EngineState* engine = nullptr;
  unsigned index = 0;       // in its link's queues
  std::uint64_t piece = 0;  // largest piece
  std::array<SegmentList, kClasses> classes;
  std::size_t size = 0;         // segments of all classes
  std::uint64_t in_flight = 0;  // bytes
  std::uint64_t served = 0;     // the number of the last take() that took a piece
  bool active = false;
};

// A pair of nodes.
struct NodePair {
  NodeId from{};
  NodeId to{};
  std::vector<std::unique_ptr<LinkQueue>> queues;  // of possible engines that have a backend
  std::uint64_t in_flight = 0;                     // bytes
  std::uint64_t bound = 0;                         // bound of in_flight
  Turns turns;
  std::uint64_t closed = 0;  // the number of the take() that found it full
  // Answers of the Mover's own route policy, which is pure.
  struct Answer {
    Bytes bytes;
    std::optional<Route> route;
  };
  std::array<Answer, 4> answers;
  std::size_t next_answer = 0;

  // Valid until the next remember(); null: not known.
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
  // Parameters: see MoverOptions.
  MoveScheduler(const Machine& machine, const Backends& backends, std::optional<Bytes> piece,
                std::optional<Bytes> bound);

  // If it throws std::bad_alloc, nothing was changed.
  NodePair& link(NodeId from, NodeId to);

  // Enters a move by its route. If it fails, nothing was entered.
  // Errors: absent: neither an engine of the route nor another is open. Throws std::bad_alloc.
  Status open(const std::shared_ptr<Move>& move, NodePair& link, const Route& route);
  // The engine that would copy a whole move by this route inline as one piece.
  std::optional<EngineId> inline_engine(NodePair& link, const Route& route);
  // Takes the pieces that may be submitted now, at most segments.size(), and counts them as in
  // flight. Takes at most `inline_left` pieces that are copied inline, and subtracts them from it.
  std::size_t take(std::span<Segment*> segments, std::size_t& inline_left, TurnTime& time);
  // Whether the last take() passed over a piece only because it is copied inline.
  bool left() const { return left_; }
  // Returns a piece that the engine did not accept to the front of its queue.
  void put_back(Segment& segment);
  // The engine took fewer pieces than offered. `seen`: Segment::seen of the first piece it left.
  void stall(EngineState& engine, std::uint64_t seen);
  // Lets stalled engines be offered pieces again if none of ours is in flight there.
  void retry_stalled();
  // Counts the end of a piece: successful unless it has a `failure`.
  void settle(Segment& segment);
  // Moves the queued segments of a move to the end of the queues of a more urgent class.
  void promote(Move& move, Priority priority);
  // Drops the queued segments of a move.
  void cancel(Move& move);
  // Does so for all moves.
  void cancel_all();
  // The moves with segments, linked by Move::next_open.
  Move* first_open() const { return open_.front(); }
  // Returns the moves that ended since the last call, in order, linked by Move::next_ended. Each
  // keeps itself alive. The scheduler forgets them, so no other thread writes to their fields.
  Move* take_ended();
  // Counts a move that was done at once: it is empty, or could not be entered (failed).
  void count_without_work(bool failed);

  bool quiet() const { return totals_.in_flight_pieces == 0; }
  bool queued() const { return !active_.empty(); }
  // Whether poll() must be called for work to continue.
  bool needs_poll() const;
  MoverStats stats() const;

 private:
  struct Choice {
    LinkQueue* queue = nullptr;
    std::size_t priority = 0;
    bool due = false;
  };
  LinkQueue* queue(NodePair& link, EngineId engine);
  LinkQueue* untried(NodePair& link, std::uint64_t tried, bool lists);
  LinkQueue& add_queue(NodePair& link, EngineState& engine);
  Choice choose(bool inline_too);
  bool holds_back(const EngineState& engine, std::size_t priority) const;
  bool is_overdue(const LinkQueue& queue) const;
  // null: no memory for the piece; the move has failed.
  Segment* cut(LinkQueue& queue, std::size_t priority);
  void count_turn(LinkQueue& queue, std::size_t priority);
  void enter_flight(Segment& segment);
  void leave_flight(Segment& segment);
  void enqueue(Segment& segment, LinkQueue& queue, bool in_front);
  void dequeue(Segment& segment);
  // Makes `count` segments free. Throws std::bad_alloc.
  void reserve(std::size_t count);
  Segment& make_segment(Move& move);  // Requires: a segment is free
  void free_segment(Segment& segment);
  void fail_move(Move& move, Error error);
  void drop_queued(Move& move);
  void close_if_ended(Move& move);
  bool give_to_another(Segment& segment);

  const Machine& machine_;
  bool between_memories(const NodePair& link) const;
  const std::optional<Bytes> stated_piece_;
  const std::optional<Bytes> stated_bound_;
  const std::uint64_t bound_;         // for links without an engine that prefers another
  std::vector<EngineState> engines_;  // index: raw(EngineId)
  std::unordered_map<std::uint64_t, std::unique_ptr<NodePair>> links_;
  std::vector<LinkQueue*> active_;  // queues with segments; has capacity for all
  std::size_t queues_ = 0;          // of all links
  std::size_t drives_ = 0;          // engines with a backend
  std::deque<Segment> pool_;
  Segment* free_ = nullptr;
  std::size_t free_count_ = 0;
  IntrusiveList<Move, &Move::next_open, &Move::previous_open> open_;
  std::uint64_t takes_ = 0;
  std::size_t polled_in_flight_ = 0;
  std::size_t stalls_ = 0;  // the number of stalled engines
  bool left_ = false;
  Move* first_ended_ = nullptr;
  Move* last_ended_ = nullptr;
  MoverStats totals_;
};

}  // namespace headrace
