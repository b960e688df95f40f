#include "move/books.h"

#include <algorithm>
#include <tuple>

#include "core/fail.h"

namespace headrace {
namespace {

// A waiting lower class gets every eighth piece (mover.h).
constexpr std::uint32_t kTurn = 8;
// A class passed over this often on a link, because its engine was full each time the link had
// room, has the link kept free for it. Far above kTurn: a last resort.
constexpr std::uint32_t kOverdue = 8 * kTurn;
// Direct I/O wants offsets in whole logical blocks, at most 4 KiB on today's devices; runs are cut
// there, so that at most their first and last piece are odd.
constexpr std::uint64_t kFileBlock = 4096;
// Lanes beyond this many of one link are not marked as tried, and never tried again.
constexpr unsigned kMostTried = 64;

std::size_t class_of(const Work& work) {
  return static_cast<std::size_t>(work.move->books.priority);
}

std::uint64_t mark(const Lane& lane) {
  return lane.index < kMostTried ? std::uint64_t{1} << lane.index : 0;
}

// The length of the next piece of a queued work.
std::uint64_t next_length(const Work& work) {
  const std::uint64_t most = work.lane->piece;
  if (work.length <= most) return work.length;
  const Move& move = *work.move;
  std::uint64_t odd = 0;
  if (most % kFileBlock == 0) {
    if (move.from.object->memory() == nullptr) {
      odd = (move.from.offset + work.offset) % kFileBlock;
    } else if (move.to.object->memory() == nullptr) {
      odd = (move.to.offset + work.offset) % kFileBlock;
    }
  }
  return most - odd;
}

bool is_due(const Lane& lane, std::size_t priority) {
  return lane.link->turns.passed[priority] >= kTurn - 1 ||
         lane.engine->turns.passed[priority] >= kTurn - 1;
}

bool is_overdue(const Lane& lane) {
  for (std::size_t i = 1; i < kClasses; ++i) {
    if (!lane.queues[i].empty() && lane.link->turns.passed[i] >= kOverdue) return true;
  }
  return false;
}

bool has_room(const EngineBook& engine) {
  return !engine.stalled && engine.in_flight < engine.room;
}

}  // namespace

void WorkQueue::push_back(Work& work) {
  work.previous = back;
  work.next = nullptr;
  (back == nullptr ? front : back->next) = &work;
  back = &work;
}

void WorkQueue::push_front(Work& work) {
  work.next = front;
  work.previous = nullptr;
  (front == nullptr ? back : front->previous) = &work;
  front = &work;
}

void WorkQueue::remove(Work& work) {
  (work.previous == nullptr ? front : work.previous->next) = work.next;
  (work.next == nullptr ? back : work.next->previous) = work.previous;
  work.next = work.previous = nullptr;
}

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

Books::Books(const Machine& machine, const Backends& backends, Bytes piece, Bytes bound)
    : machine_(machine), piece_(std::max<std::uint64_t>(piece.value, 1)), bound_(bound.value) {
  for (const Engine& engine : machine.engines) {
    if (raw(engine.id) >= engines_.size()) engines_.resize(raw(engine.id) + 1);
    EngineBook& book = engines_[raw(engine.id)];
    book.id = engine.id;
    book.backend = backends.find(engine.id);
    if (book.backend == nullptr) continue;
    const Capabilities& facts = book.backend->capabilities();
    book.room = std::max<std::size_t>(facts.max_in_flight, 1);
    book.polled = !facts.completes_itself;
  }
}

Link& Books::link(NodeId from, NodeId to) {
  std::unique_ptr<Link>& found = links_[std::uint64_t{raw(from)} << 32 | raw(to)];
  if (found == nullptr) {
    found = std::make_unique<Link>();
    found->from = from;
    found->to = to;
    for (const EngineId id : engines_between(machine_, from, to)) {
      EngineBook& engine = engines_[raw(id)];
      if (engine.backend != nullptr) add_lane(*found, engine);
    }
  }
  return *found;
}

Lane& Books::add_lane(Link& link, EngineBook& engine) {
  auto lane = std::make_unique<Lane>();
  lane->link = &link;
  lane->engine = &engine;
  lane->index = static_cast<unsigned>(link.lanes.size());
  const std::uint64_t most = engine.backend->capabilities().max_piece.value;
  lane->piece = most == 0 ? piece_ : std::min(piece_, most);
  link.lanes.push_back(std::move(lane));
  return *link.lanes.back();
}

// The lane of an engine; also for one that engines_between does not list, since a route policy may
// know better. nullptr: nobody drives it.
Lane* Books::lane(Link& link, EngineId engine) {
  for (const auto& lane : link.lanes) {
    if (lane->engine->id == engine) return lane.get();
  }
  if (raw(engine) >= engines_.size() || engines_[raw(engine)].backend == nullptr) return nullptr;
  return &add_lane(link, engines_[raw(engine)]);
}

Lane* Books::untried(Link& link, std::uint64_t tried) {
  for (const auto& lane : link.lanes) {
    if (lane->index < kMostTried && (tried & mark(*lane)) == 0) return lane.get();
  }
  return nullptr;
}

Status Books::open(const std::shared_ptr<Move>& move, Link& link, const Route& route) {
  if (link.lanes.empty() &&
      std::ranges::none_of(route.parts, [&](auto& part) { return lane(link, part.engine); })) {
    return fail(ErrorCode::absent,
                "no open backend can copy from node {} to node {}; headrace doctor says what is "
                "missing",
                raw(link.from), raw(link.to));
  }
  for (const RoutePart& part : route.parts) {
    if (part.length == 0_B) continue;
    Lane* at = lane(link, part.engine);
    Work& work = make_work(*move);
    work.offset = part.offset;
    work.length = part.length.value;
    enqueue(work, at != nullptr ? *at : *untried(link, 0), false);
  }
  ++totals_.transfers;
  move->books.self = move;
  move->books.next_open = open_;
  if (open_ != nullptr) open_->books.previous_open = move.get();
  open_ = move.get();
  return {};
}

std::size_t Books::take(std::span<Work*> works, const Clock& clock) {
  ++takes_;
  std::size_t taken = 0;
  while (taken < works.size()) {
    const Choice choice = choose();
    if (choice.lane == nullptr) break;
    Work* work = cut(*choice.lane, choice.priority);
    count_turn(*choice.lane, choice.priority);
    fly(*work);
    auto& books = work->move->books;
    if (!books.first_taken) books.first_taken = clock.now();
    works[taken++] = work;
  }
  return taken;
}

// Rules 1 to 3.
Books::Choice Books::choose() {
  for (;;) {
    Choice best;
    for (Lane* lane : active_) {
      if (lane->link->closed == takes_) continue;
      if (!has_room(*lane->engine)) {
        if (!lane->engine->stalled && is_overdue(*lane)) lane->link->closed = takes_;
        continue;
      }
      Choice here;
      for (std::size_t i = kClasses; i-- > 0;) {
        if (lane->queues[i].empty()) continue;
        const bool due = i > 0 && is_due(*lane, i);
        if (here.lane == nullptr || due || !here.due) here = {lane, i, due};
      }
      const auto rank = [](const Choice& c) {
        return std::tuple(!c.due, c.due ? 0 : c.priority, c.lane->in_flight, c.lane->served);
      };
      if (best.lane == nullptr || rank(here) < rank(best)) best = here;
    }
    if (best.lane == nullptr) return best;
    Link& link = *best.lane->link;
    if (link.closed == takes_) continue;
    const std::uint64_t length = next_length(*best.lane->queues[best.priority].front);
    if (link.in_flight == 0 || link.in_flight + length <= bound_) return best;
    link.closed = takes_;
  }
}

// Splits the next piece off the front of a queue.
Work* Books::cut(Lane& lane, std::size_t priority) {
  Work& front = *lane.queues[priority].front;
  const std::uint64_t length = next_length(front);
  if (length == front.length) {
    dequeue(front);
    return &front;
  }
  Work& piece = make_work(*front.move);
  piece.lane = &lane;
  piece.offset = front.offset;
  piece.length = length;
  piece.tried = front.tried;
  front.offset += length;
  front.length -= length;
  return &piece;
}

void Books::count_turn(Lane& lane, std::size_t priority) {
  lane.served = takes_;
  for (Turns* turns : {&lane.link->turns, &lane.engine->turns}) {
    turns->passed[priority] = 0;
    for (std::size_t i = 1; i < kClasses; ++i) {
      if (i != priority) turns->passed[i] = turns->waiting[i] > 0 ? turns->passed[i] + 1 : 0;
    }
  }
}

void Books::fly(Work& work) {
  Lane& lane = *work.lane;
  work.in_flight = true;
  work.seen = lane.engine->completions;
  lane.in_flight += work.length;
  lane.link->in_flight += work.length;
  ++lane.engine->in_flight;
  ++totals_.in_flight_pieces;
  polled_in_flight_ += lane.engine->polled;
}

void Books::land(Work& work) {
  Lane& lane = *work.lane;
  work.in_flight = false;
  lane.in_flight -= work.length;
  lane.link->in_flight -= work.length;
  --lane.engine->in_flight;
  --totals_.in_flight_pieces;
  polled_in_flight_ -= lane.engine->polled;
}

void Books::enqueue(Work& work, Lane& lane, bool in_front) {
  const std::size_t priority = class_of(work);
  work.lane = &lane;
  WorkQueue& queue = lane.queues[priority];
  in_front ? queue.push_front(work) : queue.push_back(work);
  ++lane.works;
  ++lane.link->turns.waiting[priority];
  ++lane.engine->turns.waiting[priority];
  if (!std::exchange(lane.active, true)) active_.push_back(&lane);
}

void Books::dequeue(Work& work) {
  Lane& lane = *work.lane;
  const std::size_t priority = class_of(work);
  lane.queues[priority].remove(work);
  --lane.link->turns.waiting[priority];
  --lane.engine->turns.waiting[priority];
  if (--lane.works > 0) return;
  lane.active = false;
  std::erase(active_, &lane);
}

std::shared_ptr<Move> Books::put_back(Work& work) {
  Move& move = *work.move;
  land(work);
  if (move.books.stopping()) {
    free_work(work);
    return close_if_ended(move);
  }
  enqueue(work, *work.lane, true);
  if (const std::size_t priority = class_of(work); priority > 0) {
    // It was its turn and still is: else an engine that takes few of each batch would starve it.
    for (Turns* turns : {&work.lane->link->turns, &work.lane->engine->turns}) {
      turns->passed[priority] = std::max(turns->passed[priority], kTurn - 1);
    }
  }
  bool accepted = move.books.stats.pieces > 0;
  for (const Work* w = move.books.works; w != nullptr; w = w->next_of_move) {
    accepted = accepted || w->in_flight;
  }
  if (!accepted) move.books.first_taken.reset();
  return nullptr;
}

void Books::stall(EngineBook& engine, std::uint64_t seen) {
  // A completion between the refusal and now has made room already.
  if (engine.completions != seen || engine.stalled) return;
  engine.stalled = true;
  ++stalls_;
}

void Books::retry_stalled() {
  if (stalls_ == 0) return;
  for (EngineBook& engine : engines_) {
    if (engine.in_flight == 0 && std::exchange(engine.stalled, false)) --stalls_;
  }
}

bool Books::needs_poll() const {
  return polled_in_flight_ > 0 ||
         (stalls_ > 0 && std::ranges::any_of(engines_, [](const EngineBook& engine) {
            return engine.stalled && engine.in_flight == 0;
          }));
}

std::shared_ptr<Move> Books::settle(Work& work, Status outcome) {
  Move& move = *work.move;
  EngineBook& engine = *work.lane->engine;
  land(work);
  ++engine.completions;
  if (std::exchange(engine.stalled, false)) --stalls_;
  if (outcome) {
    MoveStats& stats = move.books.stats;
    ++stats.pieces;
    ++totals_.pieces;
    stats.bytes += Bytes{work.length};
    totals_.bytes += Bytes{work.length};
    const auto at = std::ranges::lower_bound(stats.engines, engine.id);
    if (at == stats.engines.end() || *at != engine.id) stats.engines.insert(at, engine.id);
    free_work(work);
  } else if (move.books.stopping() || outcome.error().code == ErrorCode::invalid ||
             !give_to_another(work)) {
    if (!move.books.cancelled) move.books.failure = std::move(outcome).error();
    free_work(work);
    drop_queued(move);
  }
  return close_if_ended(move);
}

// A piece that failed goes to the front of an engine that has not tried it.
bool Books::give_to_another(Work& work) {
  work.tried |= mark(*work.lane);
  Lane* other = untried(*work.lane->link, work.tried);
  if (other == nullptr) return false;
  ++work.move->books.stats.retries;
  ++totals_.retries;
  enqueue(work, *other, true);
  return true;
}

void Books::promote(Move& move, Priority priority) {
  if (priority >= move.books.priority) return;
  std::vector<Work*> queued;
  for (Work* work = move.books.works; work != nullptr; work = work->next_of_move) {
    if (!work->in_flight) queued.push_back(work);
  }
  std::ranges::sort(queued, {}, &Work::offset);
  for (Work* work : queued) dequeue(*work);
  move.books.priority = priority;
  for (Work* work : queued) enqueue(*work, *work->lane, false);
}

std::shared_ptr<Move> Books::cancel(Move& move) {
  if (move.books.self == nullptr) return nullptr;
  move.books.cancelled = move.books.cancelled || !move.books.failure;
  drop_queued(move);
  return close_if_ended(move);
}

std::vector<std::shared_ptr<Move>> Books::cancel_all() {
  std::vector<std::shared_ptr<Move>> ended;
  for (Move* move = open_; move != nullptr;) {
    Move* next = move->books.next_open;
    if (auto done = cancel(*move)) ended.push_back(std::move(done));
    move = next;
  }
  return ended;
}

void Books::count_without_work(bool failed) {
  ++totals_.transfers;
  totals_.failed += failed;
}

void Books::drop_queued(Move& move) {
  for (Work* work = move.books.works; work != nullptr;) {
    Work* next = work->next_of_move;
    if (!work->in_flight) {
      dequeue(*work);
      free_work(*work);
    }
    work = next;
  }
}

// Takes an ended move off the books.
std::shared_ptr<Move> Books::close_if_ended(Move& move) {
  auto& books = move.books;
  if (books.works_count > 0) return nullptr;
  (books.previous_open == nullptr ? open_ : books.previous_open->books.next_open) = books.next_open;
  if (books.next_open != nullptr) books.next_open->books.previous_open = books.previous_open;
  totals_.failed += books.failure.has_value();
  totals_.cancelled += books.cancelled;
  return std::move(books.self);
}

Work& Books::make_work(Move& move) {
  Work* work = free_;
  if (work != nullptr) {
    free_ = work->next;
    *work = Work{};
  } else {
    work = &pool_.emplace_back();
  }
  work->move = &move;
  work->next_of_move = move.books.works;
  if (move.books.works != nullptr) move.books.works->previous_of_move = work;
  move.books.works = work;
  ++move.books.works_count;
  return *work;
}

void Books::free_work(Work& work) {
  auto& books = work.move->books;
  Work* const next = work.next_of_move;
  (work.previous_of_move == nullptr ? books.works : work.previous_of_move->next_of_move) = next;
  if (next != nullptr) next->previous_of_move = work.previous_of_move;
  --books.works_count;
  work.next = free_;
  free_ = &work;
}

MoverStats Books::stats() const {
  MoverStats stats = totals_;
  for (const Lane* lane : active_) {
    for (const WorkQueue& queue : lane->queues) {
      for (const Work* work = queue.front; work != nullptr; work = work->next) {
        const std::uint64_t first = next_length(*work);
        stats.queued_pieces += 1 + (work->length - first + lane->piece - 1) / lane->piece;
      }
    }
  }
  return stats;
}

}  // namespace headrace
