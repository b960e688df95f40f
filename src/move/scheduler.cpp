#include "move/scheduler.h"

#include <algorithm>
#include <tuple>

#include "core/fail.h"

namespace headrace {
namespace {

// A waiting lower class gets every eighth piece (mover.h).
constexpr std::uint32_t kTurn = 8;
// A class passed over this often on a link, because its engine was full each time the link was
// not, has the link kept free for it. Far above kTurn: a last resort.
constexpr std::uint32_t kOverdue = 8 * kTurn;
// Direct I/O wants offsets in whole logical blocks, at most 4 KiB on today's devices; runs are cut
// there, so that at most their first and last piece are odd.
constexpr std::uint64_t kFileBlock = 4096;
// Queues beyond this many of one link are not marked as tried, and never tried again.
constexpr unsigned kMostTried = 64;

std::size_t class_of(const Segment& segment) {
  return static_cast<std::size_t>(segment.move->scheduling.priority);
}

std::uint64_t mark(const LinkQueue& queue) {
  return queue.index < kMostTried ? std::uint64_t{1} << queue.index : 0;
}

// The length of the next piece of a queued segment.
std::uint64_t next_length(const Segment& segment) {
  const std::uint64_t most = segment.queue->piece;
  if (segment.length <= most) return segment.length;
  const Move& move = *segment.move;
  std::uint64_t odd = 0;
  if (most % kFileBlock == 0) {
    if (move.from.object->memory() == nullptr) {
      odd = (move.from.offset + segment.offset) % kFileBlock;
    } else if (move.to.object->memory() == nullptr) {
      odd = (move.to.offset + segment.offset) % kFileBlock;
    }
  }
  return most - odd;
}

bool is_due(const LinkQueue& queue, std::size_t priority) {
  return queue.link->turns.passed[priority] >= kTurn - 1 ||
         queue.engine->turns.passed[priority] >= kTurn - 1;
}

bool is_overdue(const LinkQueue& queue) {
  for (std::size_t i = 1; i < kClasses; ++i) {
    if (!queue.classes[i].empty() && queue.link->turns.passed[i] >= kOverdue) return true;
  }
  return false;
}

bool takes_more(const EngineState& engine) {
  return !engine.stalled && engine.in_flight < engine.most;
}

}  // namespace

std::shared_ptr<const Route> Link::route_for(Bytes bytes) const {
  for (const Answer& answer : answers) {
    if (answer.route != nullptr && answer.bytes == bytes) return answer.route;
  }
  return nullptr;
}

void Link::remember(Bytes bytes, std::shared_ptr<const Route> route) {
  answers[next_answer] = {bytes, std::move(route)};
  next_answer = (next_answer + 1) % answers.size();
}

MoveScheduler::MoveScheduler(const Machine& machine, const Backends& backends, Bytes piece,
                             Bytes bound)
    : machine_(machine), piece_(std::max<std::uint64_t>(piece.value, 1)), bound_(bound.value) {
  for (const Engine& engine : machine.engines) {
    if (raw(engine.id) >= engines_.size()) engines_.resize(raw(engine.id) + 1);
    EngineState& state = engines_[raw(engine.id)];
    state.id = engine.id;
    state.backend = backends.find(engine.id);
    if (state.backend == nullptr) continue;
    const Capabilities& facts = state.backend->capabilities();
    state.most = std::max<std::size_t>(facts.max_in_flight, 1);
    state.polled = !facts.completes_itself;
  }
}

Link& MoveScheduler::link(NodeId from, NodeId to) {
  std::unique_ptr<Link>& found = links_[std::uint64_t{raw(from)} << 32 | raw(to)];
  if (found == nullptr) {
    found = std::make_unique<Link>();
    found->from = from;
    found->to = to;
    for (const EngineId id : engines_between(machine_, from, to)) {
      EngineState& engine = engines_[raw(id)];
      if (engine.backend != nullptr) add_queue(*found, engine);
    }
  }
  return *found;
}

LinkQueue& MoveScheduler::add_queue(Link& link, EngineState& engine) {
  auto queue = std::make_unique<LinkQueue>();
  queue->link = &link;
  queue->engine = &engine;
  queue->index = static_cast<unsigned>(link.queues.size());
  const std::uint64_t most = engine.backend->capabilities().max_piece.value;
  queue->piece = most == 0 ? piece_ : std::min(piece_, most);
  link.queues.push_back(std::move(queue));
  return *link.queues.back();
}

// The queue of an engine; also for one that engines_between does not list, since a route policy may
// know better. nullptr: nobody drives it.
LinkQueue* MoveScheduler::queue(Link& link, EngineId engine) {
  for (const auto& queue : link.queues) {
    if (queue->engine->id == engine) return queue.get();
  }
  if (raw(engine) >= engines_.size() || engines_[raw(engine)].backend == nullptr) return nullptr;
  return &add_queue(link, engines_[raw(engine)]);
}

LinkQueue* MoveScheduler::untried(Link& link, std::uint64_t tried) {
  for (const auto& queue : link.queues) {
    if (queue->index < kMostTried && (tried & mark(*queue)) == 0) return queue.get();
  }
  return nullptr;
}

Status MoveScheduler::open(const std::shared_ptr<Move>& move, Link& link, const Route& route) {
  if (link.queues.empty() &&
      std::ranges::none_of(route.parts, [&](auto& part) { return queue(link, part.engine); })) {
    return fail(ErrorCode::absent,
                "no open backend can copy from node {} to node {}; headrace doctor says what is "
                "missing",
                raw(link.from), raw(link.to));
  }
  for (const RoutePart& part : route.parts) {
    if (part.length == 0_B) continue;
    LinkQueue* at = queue(link, part.engine);
    Segment& segment = make_segment(*move);
    segment.offset = part.offset;
    segment.length = part.length.value;
    enqueue(segment, at != nullptr ? *at : *untried(link, 0), false);
  }
  ++totals_.transfers;
  move->scheduling.self = move;
  open_.push_front(*move);
  return {};
}

std::size_t MoveScheduler::take(std::span<Segment*> segments, const Clock& clock) {
  ++takes_;
  std::size_t taken = 0;
  while (taken < segments.size()) {
    const Choice choice = choose();
    if (choice.queue == nullptr) break;
    Segment* segment = cut(*choice.queue, choice.priority);
    count_turn(*choice.queue, choice.priority);
    enter_flight(*segment);
    auto& scheduling = segment->move->scheduling;
    if (!scheduling.first_taken) scheduling.first_taken = clock.now();
    segments[taken++] = segment;
  }
  return taken;
}

// Rules 1 to 3.
MoveScheduler::Choice MoveScheduler::choose() {
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
        if (queue->classes[i].empty()) continue;
        const bool due = i > 0 && is_due(*queue, i);
        if (here.queue == nullptr || due || !here.due) here = {queue, i, due};
      }
      const auto rank = [](const Choice& c) {
        return std::tuple(!c.due, c.due ? 0 : c.priority, c.queue->in_flight, c.queue->served);
      };
      if (best.queue == nullptr || rank(here) < rank(best)) best = here;
    }
    if (best.queue == nullptr) return best;
    Link& link = *best.queue->link;
    if (link.closed == takes_) continue;
    const std::uint64_t length = next_length(*best.queue->classes[best.priority].front());
    if (link.in_flight == 0 || link.in_flight + length <= bound_) return best;
    link.closed = takes_;
  }
}

// Splits the next piece off the front of a queue.
Segment* MoveScheduler::cut(LinkQueue& queue, std::size_t priority) {
  Segment& front = *queue.classes[priority].front();
  const std::uint64_t length = next_length(front);
  if (length == front.length) {
    dequeue(front);
    return &front;
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
  segment.in_flight = true;
  segment.seen = queue.engine->completions;
  queue.in_flight += segment.length;
  queue.link->in_flight += segment.length;
  ++queue.engine->in_flight;
  ++totals_.in_flight_pieces;
  polled_in_flight_ += queue.engine->polled;
}

void MoveScheduler::leave_flight(Segment& segment) {
  LinkQueue& queue = *segment.queue;
  segment.in_flight = false;
  queue.in_flight -= segment.length;
  queue.link->in_flight -= segment.length;
  --queue.engine->in_flight;
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

std::shared_ptr<Move> MoveScheduler::put_back(Segment& segment) {
  Move& move = *segment.move;
  leave_flight(segment);
  if (move.scheduling.stopping()) {
    free_segment(segment);
    return close_if_ended(move);
  }
  enqueue(segment, *segment.queue, true);
  if (const std::size_t priority = class_of(segment); priority > 0) {
    // It was its turn and still is: else an engine that takes few of each batch would starve it.
    for (Turns* turns : {&segment.queue->link->turns, &segment.queue->engine->turns}) {
      turns->passed[priority] = std::max(turns->passed[priority], kTurn - 1);
    }
  }
  bool accepted = move.scheduling.stats.pieces > 0;
  for (const Segment* s = move.scheduling.segments.front(); s != nullptr;
       s = MoveSegments::next(*s)) {
    accepted = accepted || s->in_flight;
  }
  if (!accepted) move.scheduling.first_taken.reset();
  return nullptr;
}

void MoveScheduler::stall(EngineState& engine, std::uint64_t seen) {
  // A completion between the refusal and now has freed a place already.
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

std::shared_ptr<Move> MoveScheduler::settle(Segment& segment, Status outcome) {
  Move& move = *segment.move;
  EngineState& engine = *segment.queue->engine;
  leave_flight(segment);
  ++engine.completions;
  if (std::exchange(engine.stalled, false)) --stalls_;
  if (outcome) {
    MoveStats& stats = move.scheduling.stats;
    ++stats.pieces;
    ++totals_.pieces;
    stats.bytes += Bytes{segment.length};
    totals_.bytes += Bytes{segment.length};
    const auto at = std::ranges::lower_bound(stats.engines, engine.id);
    if (at == stats.engines.end() || *at != engine.id) stats.engines.insert(at, engine.id);
    free_segment(segment);
  } else if (move.scheduling.stopping() || outcome.error().code == ErrorCode::invalid ||
             !give_to_another(segment)) {
    if (!move.scheduling.cancelled) move.scheduling.failure = std::move(outcome).error();
    free_segment(segment);
    drop_queued(move);
  }
  return close_if_ended(move);
}

// A piece that failed goes to the front of an engine that has not tried it.
bool MoveScheduler::give_to_another(Segment& segment) {
  segment.tried |= mark(*segment.queue);
  LinkQueue* other = untried(*segment.queue->link, segment.tried);
  if (other == nullptr) return false;
  ++segment.move->scheduling.stats.retries;
  ++totals_.retries;
  enqueue(segment, *other, true);
  return true;
}

void MoveScheduler::promote(Move& move, Priority priority) {
  if (priority >= move.scheduling.priority) return;
  std::vector<Segment*> queued;
  const MoveSegments& segments = move.scheduling.segments;
  for (Segment* segment = segments.front(); segment != nullptr;
       segment = MoveSegments::next(*segment)) {
    if (!segment->in_flight) queued.push_back(segment);
  }
  std::ranges::sort(queued, {}, &Segment::offset);
  for (Segment* segment : queued) dequeue(*segment);
  move.scheduling.priority = priority;
  for (Segment* segment : queued) enqueue(*segment, *segment->queue, false);
}

std::shared_ptr<Move> MoveScheduler::cancel(Move& move) {
  if (move.scheduling.self == nullptr) return nullptr;
  move.scheduling.cancelled = move.scheduling.cancelled || !move.scheduling.failure;
  drop_queued(move);
  return close_if_ended(move);
}

std::vector<std::shared_ptr<Move>> MoveScheduler::cancel_all() {
  std::vector<std::shared_ptr<Move>> ended;
  for (Move* move = open_.front(); move != nullptr;) {
    Move* next = move->next_open;
    if (auto done = cancel(*move)) ended.push_back(std::move(done));
    move = next;
  }
  return ended;
}

void MoveScheduler::count_without_work(bool failed) {
  ++totals_.transfers;
  totals_.failed += failed;
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

// The move, once nothing of it is left; it is then forgotten here.
std::shared_ptr<Move> MoveScheduler::close_if_ended(Move& move) {
  auto& scheduling = move.scheduling;
  if (!scheduling.segments.empty()) return nullptr;
  open_.remove(move);
  totals_.failed += scheduling.failure.has_value();
  totals_.cancelled += scheduling.cancelled;
  return std::move(scheduling.self);
}

Segment& MoveScheduler::make_segment(Move& move) {
  Segment* segment = free_;
  if (segment != nullptr) {
    free_ = segment->next;
    *segment = Segment{};
  } else {
    segment = &pool_.emplace_back();
  }
  segment->move = &move;
  move.scheduling.segments.push_back(*segment);
  return *segment;
}

void MoveScheduler::free_segment(Segment& segment) {
  auto& scheduling = segment.move->scheduling;
  scheduling.segments.remove(segment);
  segment.next = free_;
  free_ = &segment;
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
