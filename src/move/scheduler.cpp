// SPDX-License-Identifier: Apache-2.0
#include "move/scheduler.h"

#include <algorithm>
#include <new>
#include <tuple>

#include "core/fail.h"
#include "headrace/storage/user_source.h"

namespace headrace {
namespace {

// Defaults for pieces and bytes in flight where neither the user nor the engine states one.
constexpr Bytes kPiece = 1_MiB;
constexpr Bytes kInFlight = 16_MiB;
// A waiting lower class gets every eighth piece, if rule 4 lets it.
constexpr std::uint32_t kTurn = 8;
// After this many pieces of other classes on a link, the link is kept free for the waiting class:
// its engine was full whenever the link was not. Far above kTurn, a last resort.
constexpr std::uint32_t kOverdue = 8 * kTurn;
// Direct I/O needs offsets in whole logical blocks, at most 4 KiB on today's devices. Runs are cut
// there, so that only their first and last pieces are unaligned.
constexpr std::uint64_t kFileBlock = 4096;
// Queues of a link beyond this many cannot be marked as tried, so a failed piece does not go there.
constexpr unsigned kMostTried = 64;

std::size_t class_of(const Segment& segment) {
  return static_cast<std::size_t>(segment.move->scheduling.priority);
}

std::uint64_t mark(const LinkQueue& queue) {
  return queue.index < kMostTried ? std::uint64_t{1} << queue.index : 0;
}

bool is_file(const Object& object) {
  return object.memory() == nullptr && !object.device_address();
}

// At most the next piece's bytes, if it begins at `position` of a UserSource: whole chunks.
std::uint64_t in_chunks(const LinkQueue& queue, std::uint64_t position, std::uint64_t chunk) {
  const std::uint64_t allowed = queue.engine->backend->capabilities().max_piece.value;
  const std::uint64_t most = std::max(queue.piece, chunk - position % chunk);
  if (allowed > 0 && most > allowed) return queue.piece;
  return most - (position + most) % chunk;
}

// The length of the next piece of a queued segment.
std::uint64_t next_length(const Segment& segment) {
  const std::uint64_t most = segment.queue->piece;
  const Move& move = *segment.move;
  if (segment.length <= most || move.list != nullptr) return segment.length;
  if (const UserSource* const source = move.from.object->user_source()) {
    const std::uint64_t position = move.from.offset + segment.offset;
    return std::min(in_chunks(*segment.queue, position, source->chunk().value), segment.length);
  }
  std::uint64_t odd = 0;
  if (most % kFileBlock == 0) {
    if (is_file(*move.from.object)) {
      odd = (move.from.offset + segment.offset) % kFileBlock;
    } else if (is_file(*move.to.object)) {
      odd = (move.to.offset + segment.offset) % kFileBlock;
    }
  }
  return most - odd;
}

// How many pieces of other classes went before this class on its link or its engine.
std::uint32_t passed(const LinkQueue& queue, std::size_t priority) {
  return std::max(queue.link->turns.passed[priority], queue.engine->turns.passed[priority]);
}

// Keeps the list sorted. Late segments belong near its end.
void insert_by_offset(SegmentList& list, Segment& segment) {
  SegmentList behind;
  while (!list.empty() && list.back()->offset > segment.offset) {
    Segment& last = *list.back();
    list.remove(last);
    behind.push_front(last);
  }
  list.push_back(segment);
  while (Segment* next = behind.front()) {
    behind.remove(*next);
    list.push_back(*next);
  }
}

bool takes_more(const EngineState& engine) {
  return !engine.stalled && engine.in_flight < engine.most;
}

}  // namespace

const Route* NodePair::route_for(Bytes bytes) const {
  for (const Answer& answer : answers) {
    if (answer.route && answer.bytes == bytes) return &*answer.route;
  }
  return nullptr;
}

const Route& NodePair::remember(Bytes bytes, Route route) noexcept {
  Answer& answer = answers[next_answer];
  next_answer = (next_answer + 1) % answers.size();
  answer = {bytes, std::move(route)};
  return *answer.route;
}

MoveScheduler::MoveScheduler(const Machine& machine, const Backends& backends,
                             std::optional<Bytes> piece, std::optional<Bytes> bound)
    : machine_(machine),
      stated_piece_(piece),
      stated_bound_(bound),
      bound_(bound.value_or(kInFlight).value) {
  for (const Engine& engine : machine.engines) {
    if (raw(engine.id) >= engines_.size()) engines_.resize(raw(engine.id) + 1);
    EngineState& state = engines_[raw(engine.id)];
    state.id = engine.id;
    state.backend = backends.find(engine.id);
    if (state.backend == nullptr) {
      const std::string name = fmt::format("{} ({}): ", engine.name, to_string(engine.kind));
      for (const std::string& skipped : backends.skipped()) {
        if (skipped.starts_with(name)) state.why = " (" + skipped + ")";
      }
      continue;
    }
    const Capabilities& facts = state.backend->capabilities();
    ++drives_;
    state.most = std::max<std::size_t>(facts.max_in_flight, 1);
    state.inline_below = facts.inline_below.value;
    state.polled = !facts.completes_itself;
    state.storage = engine.kind == EngineKind::ssd;
  }
}

NodePair& MoveScheduler::link(NodeId from, NodeId to) {
  const std::uint64_t key = std::uint64_t{raw(from)} << 32 | raw(to);
  if (const auto known = links_.find(key); known != links_.end()) return *known->second;
  auto made = std::make_unique<NodePair>();
  made->from = from;
  made->to = to;
  made->bound = bound_;
  for (const EngineId id : engines_between(machine_, from, to)) {
    EngineState& engine = engines_[raw(id)];
    if (engine.backend != nullptr) add_queue(*made, engine);
  }
  return *links_.emplace(key, std::move(made)).first->second;
}

LinkQueue& MoveScheduler::add_queue(NodePair& link, EngineState& engine) {
  auto queue = std::make_unique<LinkQueue>();
  active_.reserve(queues_ + 1);
  queue->link = &link;
  queue->engine = &engine;
  queue->index = static_cast<unsigned>(link.queues.size());
  const Capabilities& facts = engine.backend->capabilities();
  const bool prefers = between_memories(link);
  const Bytes usual = prefers && facts.piece > 0_B ? facts.piece : kPiece;
  queue->piece = std::max<std::uint64_t>(stated_piece_.value_or(usual).value, 1);
  if (facts.max_piece > 0_B) queue->piece = std::min(queue->piece, facts.max_piece.value);
  if (!stated_bound_) {
    const Bytes bound = prefers && facts.in_flight > 0_B ? facts.in_flight : kInFlight;
    link.bound = link.queues.empty() ? bound.value : std::max(link.bound, bound.value);
  }
  link.queues.push_back(std::move(queue));
  ++queues_;
  return *link.queues.back();
}

// Storage has queues of its own, and serves pieces in the order of submission.
bool MoveScheduler::between_memories(const NodePair& link) const {
  const auto stores = [&](NodeId id) {
    const Node* const node = machine_.find(id);
    return node == nullptr || node->kind == NodeKind::storage;
  };
  return !stores(link.from) && !stores(link.to);
}

// The queue of an engine, even if engines_between() does not list it, since a route policy may know
// better. nullptr: the engine has no backend.
LinkQueue* MoveScheduler::queue(NodePair& link, EngineId engine) {
  for (const auto& queue : link.queues) {
    if (queue->engine->id == engine) return queue.get();
  }
  if (raw(engine) >= engines_.size() || engines_[raw(engine)].backend == nullptr) return nullptr;
  return &add_queue(link, engines_[raw(engine)]);
}

LinkQueue* MoveScheduler::untried(NodePair& link, std::uint64_t tried, bool lists) {
  for (const auto& queue : link.queues) {
    if (lists && !queue->engine->backend->capabilities().lists) continue;
    if (queue->index < kMostTried && (tried & mark(*queue)) == 0) return queue.get();
  }
  return nullptr;
}

Status MoveScheduler::open(const std::shared_ptr<Move>& move, NodePair& link, const Route& route) {
  if (link.queues.empty() &&
      std::ranges::none_of(route.parts, [&](auto& part) { return queue(link, part.engine); })) {
    std::string why;
    for (const EngineId id : engines_between(machine_, link.from, link.to)) {
      why += engines_[raw(id)].why;
    }
    return fail(ErrorCode::absent,
                "no open backend can copy from node {} to node {}{}; headrace doctor says what is "
                "missing",
                raw(link.from), raw(link.to), why);
  }
  // All that can throw comes first: queues of the route, segments, and what settle() will need.
  for (const RoutePart& part : route.parts) queue(link, part.engine);
  reserve(route.parts.size());
  move->scheduling.stats.engines.reserve(drives_);
  for (const RoutePart& part : route.parts) {
    if (part.length == 0_B) continue;
    LinkQueue* at = queue(link, part.engine);
    Segment& segment = make_segment(*move);
    segment.offset = part.offset;
    segment.length = part.length.value;
    enqueue(segment, at != nullptr ? *at : *untried(link, 0, false), false);
  }
  totals_.transfers += move->size();
  move->scheduling.self = move;
  open_.push_front(*move);
  return {};
}

std::optional<EngineId> MoveScheduler::inline_engine(NodePair& link, const Route& route) {
  if (route.parts.size() != 1) return std::nullopt;
  const RoutePart& part = route.parts.front();
  const LinkQueue* at = queue(link, part.engine);
  if (at == nullptr || part.length.value > at->piece || !copied_inline(*at, part.length.value)) {
    return std::nullopt;
  }
  return part.engine;
}

std::size_t MoveScheduler::take(std::span<Segment*> segments, std::size_t& inline_left,
                                TurnTime& time) {
  ++takes_;
  left_ = false;
  std::size_t taken = 0;
  while (taken < segments.size()) {
    const Choice choice = choose(inline_left > 0);
    if (choice.queue == nullptr) break;
    Segment* segment = cut(*choice.queue, choice.priority);
    if (segment == nullptr) continue;
    inline_left -= copied_inline(*choice.queue, segment->length);
    count_turn(*choice.queue, choice.priority);
    enter_flight(*segment);
    auto& scheduling = segment->move->scheduling;
    if (!scheduling.first_taken) scheduling.first_taken = time.now();
    segments[taken++] = segment;
  }
  return taken;
}

// Rule 4. The length of the piece does not matter: otherwise shorter pieces would always be first.
bool MoveScheduler::holds_back(const EngineState& engine, std::size_t priority) const {
  return priority > 0 && engine.beside_demand > 0 &&
         engine.patient >= std::max<std::uint64_t>(bound_ / 8, 1);
}

bool MoveScheduler::is_overdue(const LinkQueue& queue) const {
  for (std::size_t i = 1; i < kClasses; ++i) {
    if (queue.classes[i].empty() || holds_back(*queue.engine, i)) continue;
    if (queue.link->turns.passed[i] >= kOverdue) return true;
  }
  return false;
}

// Rules 1 to 5.
MoveScheduler::Choice MoveScheduler::choose(bool inline_too) {
  for (;;) {
    Choice best;
    for (LinkQueue* queue : active_) {
      if (queue->link->closed == takes_) continue;
      if (!takes_more(*queue->engine)) {
        if (!queue->engine->stalled && is_overdue(*queue)) queue->link->closed = takes_;
        continue;
      }
      Choice here;
      for (std::size_t i = kClasses; i-- > 0;) {
        if (queue->classes[i].empty() || holds_back(*queue->engine, i)) continue;
        const bool due = i > 0 && passed(*queue, i) >= kTurn - 1;
        // If two classes are due, the one that has waited longer goes first.
        if (here.due && (!due || passed(*queue, i) < passed(*queue, here.priority))) continue;
        here = {queue, i, due};
      }
      if (here.queue == nullptr) continue;
      const auto rank = [](const Choice& c) {
        return std::tuple(!c.due, c.due ? 0 : c.priority, c.queue->in_flight, c.queue->served);
      };
      if (best.queue == nullptr || rank(here) < rank(best)) best = here;
    }
    if (best.queue == nullptr) return best;
    NodePair& link = *best.queue->link;
    if (link.closed == takes_) continue;
    const std::uint64_t length = next_length(*best.queue->classes[best.priority].front());
    if (link.in_flight == 0 || link.in_flight + length <= link.bound) {
      if (inline_too || !copied_inline(*best.queue, length)) return best;
      left_ = true;
    }
    link.closed = takes_;
  }
}

// Cuts the next piece off the front of a queue.
Segment* MoveScheduler::cut(LinkQueue& queue, std::size_t priority) {
  Segment& front = *queue.classes[priority].front();
  const std::uint64_t length = next_length(front);
  if (length == front.length) {
    dequeue(front);
    return &front;
  }
  try {
    reserve(1);
  } catch (const std::bad_alloc&) {
    fail_move(*front.move, out_of_memory().error());
    return nullptr;
  }
  Segment& piece = make_segment(*front.move);
  piece.queue = &queue;
  piece.offset = front.offset;
  piece.length = length;
  piece.tried = front.tried;
  front.offset += length;
  front.length -= length;
  return &piece;
}

void MoveScheduler::count_turn(LinkQueue& queue, std::size_t priority) {
  queue.served = takes_;
  for (Turns* turns : {&queue.link->turns, &queue.engine->turns}) {
    turns->passed[priority] = 0;
    for (std::size_t i = 1; i < kClasses; ++i) {
      if (i != priority) turns->passed[i] = turns->waiting[i] > 0 ? turns->passed[i] + 1 : 0;
    }
  }
}

void MoveScheduler::enter_flight(Segment& segment) {
  LinkQueue& queue = *segment.queue;
  Move& move = segment.move->whole != nullptr ? *segment.move->whole : *segment.move;
  if (!move.begun.load()) move.begun = true;
  segment.in_flight = true;
  segment.seen = queue.engine->completions;
  queue.in_flight += segment.length;
  queue.link->in_flight += segment.length;
  ++queue.engine->in_flight;
  EngineState& engine = *queue.engine;
  segment.patient = class_of(segment) > 0;
  if (segment.patient) {
    engine.patient += segment.length;
    engine.beside_demand -= std::min(engine.beside_demand, segment.length);
  } else if (engine.storage && !segment.move->scheduling.promoted) {
    engine.beside_demand = 4 * bound_;
  }
  ++totals_.in_flight_pieces;
  polled_in_flight_ += queue.engine->polled;
}

void MoveScheduler::leave_flight(Segment& segment) {
  LinkQueue& queue = *segment.queue;
  segment.in_flight = false;
  queue.in_flight -= segment.length;
  queue.link->in_flight -= segment.length;
  --queue.engine->in_flight;
  if (segment.patient) queue.engine->patient -= segment.length;
  --totals_.in_flight_pieces;
  polled_in_flight_ -= queue.engine->polled;
}

void MoveScheduler::enqueue(Segment& segment, LinkQueue& queue, bool in_front) {
  const std::size_t priority = class_of(segment);
  segment.queue = &queue;
  SegmentList& list = queue.classes[priority];
  in_front ? list.push_front(segment) : list.push_back(segment);
  ++queue.size;
  ++queue.link->turns.waiting[priority];
  ++queue.engine->turns.waiting[priority];
  if (!std::exchange(queue.active, true)) active_.push_back(&queue);
}

void MoveScheduler::dequeue(Segment& segment) {
  LinkQueue& queue = *segment.queue;
  const std::size_t priority = class_of(segment);
  queue.classes[priority].remove(segment);
  --queue.link->turns.waiting[priority];
  --queue.engine->turns.waiting[priority];
  if (--queue.size > 0) return;
  queue.active = false;
  std::erase(active_, &queue);
}

void MoveScheduler::put_back(Segment& segment) {
  Move& move = *segment.move;
  leave_flight(segment);
  if (move.scheduling.stopping()) {
    free_segment(segment);
    return close_if_ended(move);
  }
  enqueue(segment, *segment.queue, true);
  if (const std::size_t priority = class_of(segment); priority > 0) {
    // It keeps its turn: otherwise an engine that takes few pieces of each batch would starve it.
    for (Turns* turns : {&segment.queue->link->turns, &segment.queue->engine->turns}) {
      turns->passed[priority] = std::max(turns->passed[priority], kTurn - 1);
    }
  }
  bool accepted = move.scheduling.stats.pieces > 0;
  for (const Segment* s = move.scheduling.segments.front(); s != nullptr;
       s = MoveSegments::next(*s)) {
    accepted = accepted || s->in_flight;
  }
  if (!accepted) {
    move.scheduling.first_taken.reset();
    if (move.whole == nullptr) move.begun = false;
  }
}

void MoveScheduler::stall(EngineState& engine, std::uint64_t seen) {
  // A completion since the refusal has already freed a slot.
  if (engine.completions != seen || engine.stalled) return;
  engine.stalled = true;
  ++stalls_;
}

void MoveScheduler::retry_stalled() {
  if (stalls_ == 0) return;
  for (EngineState& engine : engines_) {
    if (engine.in_flight == 0 && std::exchange(engine.stalled, false)) --stalls_;
  }
}

bool MoveScheduler::needs_poll() const {
  return polled_in_flight_ > 0 ||
         (stalls_ > 0 && std::ranges::any_of(engines_, [](const EngineState& engine) {
            return engine.stalled && engine.in_flight == 0;
          }));
}

void MoveScheduler::settle(Segment& segment) {
  Move& move = *segment.move;
  EngineState& engine = *segment.queue->engine;
  leave_flight(segment);
  ++engine.completions;
  if (std::exchange(engine.stalled, false)) --stalls_;
  if (!segment.failure) {
    MoveStats& stats = move.scheduling.stats;
    ++stats.pieces;
    ++totals_.pieces;
    stats.bytes += Bytes{segment.length};
    totals_.bytes += Bytes{segment.length};
    const auto at = std::ranges::lower_bound(stats.engines, engine.id);
    if (at == stats.engines.end() || *at != engine.id) stats.engines.insert(at, engine.id);
    free_segment(segment);
    return close_if_ended(move);
  }
  Error error = *std::exchange(segment.failure, std::nullopt);
  if (!move.scheduling.stopping() && error.code != ErrorCode::invalid && give_to_another(segment)) {
    return;
  }
  free_segment(segment);
  const bool cancelled = move.scheduling.cancelled || error.code == ErrorCode::cancelled;
  if (!cancelled) totals_.bytes += move.unmarked();
  fail_move(move, std::move(error));
}

// Queues a failed piece at the front of an engine that has not tried it.
bool MoveScheduler::give_to_another(Segment& segment) {
  segment.tried |= mark(*segment.queue);
  const bool lists = segment.move->list != nullptr;
  LinkQueue* other = untried(*segment.queue->link, segment.tried, lists);
  if (other == nullptr) return false;
  ++segment.move->scheduling.stats.retries;
  ++totals_.retries;
  enqueue(segment, *other, true);
  return true;
}

void MoveScheduler::promote(Move& move, Priority priority) {
  if (priority >= move.scheduling.priority) return;
  SegmentList queued;
  const MoveSegments& segments = move.scheduling.segments;
  for (Segment* segment = segments.front(); segment != nullptr;
       segment = MoveSegments::next(*segment)) {
    if (segment->in_flight) continue;
    dequeue(*segment);
    insert_by_offset(queued, *segment);
  }
  move.scheduling.priority = priority;
  move.scheduling.promoted = true;
  while (Segment* segment = queued.front()) {
    queued.remove(*segment);
    enqueue(*segment, *segment->queue, false);
  }
}

void MoveScheduler::cancel(Move& move) {
  if (move.scheduling.segments.empty()) return;  // not open, or ended
  move.scheduling.cancelled = move.scheduling.cancelled || !move.scheduling.failure;
  drop_queued(move);
  close_if_ended(move);
}

void MoveScheduler::cancel_all() {
  for (Move* move = open_.front(); move != nullptr;) {
    Move* next = move->next_open;
    cancel(*move);
    move = next;
  }
}

Move* MoveScheduler::take_ended() {
  last_ended_ = nullptr;
  return std::exchange(first_ended_, nullptr);
}

void MoveScheduler::count_without_work(bool failed) {
  ++totals_.transfers;
  totals_.failed += failed;
}

// The last failure is reported, unless the move was cancelled before.
void MoveScheduler::fail_move(Move& move, Error error) {
  if (!move.scheduling.cancelled) move.scheduling.failure = std::move(error);
  drop_queued(move);
  close_if_ended(move);
}

void MoveScheduler::drop_queued(Move& move) {
  for (Segment* segment = move.scheduling.segments.front(); segment != nullptr;) {
    Segment* next = MoveSegments::next(*segment);
    if (!segment->in_flight) {
      dequeue(*segment);
      free_segment(*segment);
    }
    segment = next;
  }
}

// Forgets a move that has no segment left.
void MoveScheduler::close_if_ended(Move& move) {
  auto& scheduling = move.scheduling;
  if (!scheduling.segments.empty()) return;
  open_.remove(move);
  if (scheduling.failure) totals_.failed += move.marked_failed();
  if (scheduling.cancelled) totals_.cancelled += move.size();
  (last_ended_ == nullptr ? first_ended_ : last_ended_->next_ended) = &move;
  last_ended_ = &move;
}

void MoveScheduler::reserve(std::size_t count) {
  while (free_count_ < count) {
    Segment& segment = pool_.emplace_back();
    segment.next = std::exchange(free_, &segment);
    ++free_count_;
  }
}

Segment& MoveScheduler::make_segment(Move& move) {
  Segment& segment = *std::exchange(free_, free_->next);
  --free_count_;
  segment = Segment{.move = &move};
  move.scheduling.segments.push_back(segment);
  return segment;
}

void MoveScheduler::free_segment(Segment& segment) {
  segment.move->scheduling.segments.remove(segment);
  segment.next = std::exchange(free_, &segment);
  ++free_count_;
}

MoverStats MoveScheduler::stats() const {
  MoverStats stats = totals_;
  for (const LinkQueue* queue : active_) {
    for (const SegmentList& list : queue->classes) {
      for (const Segment* segment = list.front(); segment != nullptr;
           segment = SegmentList::next(*segment)) {
        const std::uint64_t first = next_length(*segment);
        stats.queued_pieces += 1 + (segment->length - first + queue->piece - 1) / queue->piece;
      }
    }
  }
  return stats;
}

}  // namespace headrace
