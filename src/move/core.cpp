// SPDX-License-Identifier: Apache-2.0
#include "move/core.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "core/waiting/backoff.h"
#include "core/waiting/duration.h"
#include "core/waiting/patience.h"
#include "move/visit.h"

namespace headrace {
namespace {

// At most this many pieces that end inside one call of a backend are settled together.
constexpr std::size_t kMostReaped = 32;

// Pause after a poll that found nothing. Short at first, since most pieces take tens of
// microseconds; then longer, so that a slow device costs little CPU time.
constexpr Nanoseconds kFirstNap = std::chrono::microseconds{10};
constexpr Nanoseconds kLongestNap = std::chrono::microseconds{200};
// How long a waiting thread stays in a backend's help(). Then it sleeps until it is woken. Longer
// than usual waits: in a virtual machine, setting a CPU's next timer costs some microseconds.
constexpr Nanoseconds kHelp = std::chrono::milliseconds{100};
// The longest look; a backend ends it sooner if no piece should end by then.
constexpr Nanoseconds kLookLong = std::chrono::microseconds{200};
// Bound of a sleep that another thread ends; limits the damage if that does not happen.
constexpr Nanoseconds kLook = std::chrono::milliseconds{200};

// Both extents are valid, of equal length, and do not overlap.
bool is_plain(const Extent& to, const Extent& from) {
  return to.valid() && from.valid() && to.length == from.length && !overlap(to, from);
}

Result<MoveStats> not_done(const Move& move, const Clock& clock) noexcept {
  try {
    return fail(ErrorCode::timed_out,
                "a move of {} is not done after {}; it goes on, so wait again or cancel it",
                to_string(move.to.length), to_string(clock.now() - move.started));
  } catch (const std::bad_alloc&) {
    return Unexpected(error_in_words(ErrorCode::timed_out, "not done yet"));
  }
}

}  // namespace

thread_local MoverCore::Visit* MoverCore::Visit::top = nullptr;

MoverCore::MoverCore(const Machine& machine, const Backends& backends, MoverOptions options)
    : machine_(machine),
      options_(std::move(options)),
      scheduler_(machine, backends, options_.piece, options_.in_flight_per_link),
      waiters_poll_(!options_.poller) {
  for (const auto& backend : backends.all()) {
    (backend->capabilities().completes_itself ? others_ : polled_).push_back(backend.get());
    if (backend->capabilities().helps) helped_.push_back(backend.get());
    if (backend->capabilities().looks) looked_.push_back(backend.get());
  }
  for (const Engine& engine : machine.engines) {
    if (raw(engine.id) >= by_engine_.size()) by_engine_.resize(raw(engine.id) + 1);
    Backend* const backend = by_engine_[raw(engine.id)] = backends.find(engine.id);
    const Node* const home = machine.find(engine.home);
    if (backend == nullptr || home == nullptr || home->kind != NodeKind::gpu) continue;
    const Capabilities& facts = backend->capabilities();
    if (!facts.lists || home->byte_addressable()) continue;  // cores copy here, too
    Bytes piece = options_.piece.value_or(facts.piece);
    if (facts.max_piece > 0_B) piece = std::min(piece, facts.max_piece);
    listers_.push_back({engine.home, engine.id, backend, piece});
  }
}

namespace {

// noexcept: any exception except std::bad_alloc ends the program, as for callbacks.
Result<Route> ask(const Machine& machine, const RoutePolicy& policy,
                  const RouteRequest& request) noexcept {
  try {
    if (!policy) return fail(ErrorCode::invalid, "no route policy; give one or leave the default");
    HEADRACE_TRY(Route route, policy(machine, request));
    std::uint64_t at = 0;
    for (const RoutePart& part : route.parts) {
      if (part.offset != at || part.length.value > request.bytes.value - at) {
        return fail(ErrorCode::invalid,
                    "the route does not cover the move in order at byte {}; repair its policy", at);
      }
      at += part.length.value;
    }
    if (at != request.bytes.value) {
      return fail(ErrorCode::invalid, "the route covers {} of {} bytes; repair its policy", at,
                  request.bytes.value);
    }
    return route;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<std::size_t> submit_to(Backend& backend, std::span<const Piece> pieces,
                              Completion& completion) noexcept {
  try {
    return backend.submit(pieces, completion);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// Receives the completion of a piece that is copied inside submit().
class Copied final : public Completion {
 public:
  void complete(std::uint64_t, Status outcome) noexcept override {
    reported = true;
    well = outcome.has_value();
  }
  bool reported = false;
  bool well = false;
};
}  // namespace

// Returns whether the move was copied. If not, for any reason, the scheduler handles it.
bool MoverCore::copy_at_once(const Extent& to, const Extent& from, EngineId engine, CopyHint hint,
                             Turn& turn) {
  Inside::Entered entered(inside_);
  turn.tried = true;
  if (stopping_.load()) return false;
  const Piece piece{.from = from, .to = to, .engine = engine, .hint = hint};
  Copied copied;
  const auto accepted = submit_to(*by_engine_[raw(engine)], {&piece, 1}, copied);
  if (!accepted || *accepted == 0) return false;
  CHECK(copied.reported && "a piece below Capabilities::inline_below is copied inside submit()");
  if (!copied.well) return false;
  entered.count_copy(to.length.value);
  turn.at_once = {.bytes = to.length,
                  .total = options_.clock->now() - turn.time.now(),
                  .engine = engine,
                  .moved = true};
  return true;
}

// Enters the move, and takes the pieces that may be submitted under the same lock; or copies it at
// once and sets turn.at_once.
Status MoverCore::open(const std::shared_ptr<Move>& move, const MoveOptions& options, Visit& visit,
                       Turn& turn) {
  HEADRACE_TRY_STATUS(check_options(options_));
  HEADRACE_TRY_STATUS(check_request(move->to, move->from));
  const RouteRequest request{
      .from = move->from.object->node(), .to = move->to.object->node(), .bytes = move->to.length};
  if (request.bytes == 0_B) return {};
  std::optional<Route> own;
  if (options.route) {
    HEADRACE_TRY(own, ask(machine_, *options.route, request));
  }
  MutexLock lock(mutex_);
  NodePair& link = scheduler_.link(request.from, request.to);
  const Route* route = own ? &*own : link.route_for(request.bytes);
  if (route == nullptr) {
    lock.unlock();
    auto answer = ask(machine_, options_.route, request);
    lock.lock();
    if (!answer) return Unexpected(std::move(answer).error());
    route = &link.remember(request.bytes, *std::move(answer));
  }
  const auto engine = scheduler_.inline_engine(link, *route);
  if (engine && !turn.tried) {
    if (!own) {
      inline_routes_.remember(request.from, request.to, request.bytes, *engine);
      route = &own.emplace(*route);  // another route may replace the remembered one meanwhile
    }
    lock.unlock();
    if (copy_at_once(move->to, move->from, *engine, move->hint, turn)) return {};
    lock.lock();
  }
  if (stopping_) return fail(ErrorCode::cancelled, "the mover is being destroyed; start no moves");
  HEADRACE_TRY_STATUS(scheduler_.open(move, link, *route));
  if (visit.outermost() && move->whole == nullptr) take(visit, turn);
  return {};
}

Transfer MoverCore::copy(Extent to, Extent from, const MoveOptions& options) {
  Turn turn(TurnTime(*options_.clock, options_.clock->now()));
  if (!options.route && is_plain(to, from) && origin_.here()) {
    const auto engine = inline_routes_.find(from.object->node(), to.object->node(), to.length);
    if (engine && copy_at_once(to, from, *engine, options.hint, turn))
      return Transfer(turn.at_once);
  }
  std::shared_ptr<Move> move;
  Visit visit(this, kMostInline);
  Status opened;
  try {
    move = std::make_shared<Move>(shared_from_this(), to, from, options, turn.time.now());
    opened = origin_.check("the mover");
    if (opened) opened = open(move, options, visit, turn);
  } catch (const std::bad_alloc&) {
    opened = out_of_memory();
  }
  if (turn.at_once.moved || !opened) leave_if_due(visit);
  if (turn.at_once.moved) return Transfer(turn.at_once);
  if (!opened || to.length == 0_B) {
    if (origin_.here()) {
      MutexLock lock(mutex_);
      scheduler_.count_without_work(!opened);
    }
    if (move == nullptr) return Transfer(Transfer::Ended{.exhausted = true});
    Result<MoveStats> outcome;
    if (!opened) outcome = Unexpected(std::move(opened).error());
    move->finish(std::move(outcome), *options_.waiting);
  } else {
    leave(visit, turn);
  }
  return Transfer(std::move(move));
}

void MoverCore::settle(Visit& visit) {
  for (Segment* segment = visit.take_reaped(); segment != nullptr;) {
    Segment* next = std::exchange(segment->next, nullptr);
    scheduler_.settle(*segment);
    segment = next;
  }
}

// Counts ended pieces, and takes the pieces that the visit submits next.
void MoverCore::take(Visit& visit, Turn& turn) {
  settle(visit);
  if (std::exchange(visit.retry_stalled, false)) scheduler_.retry_stalled();
  const std::size_t most = std::min(kBatch, visit.pieces_left);
  const bool left_before = left_;
  visit.again = false;
  if (most == 0) {
    left_ = scheduler_.queued();
  } else {
    turn.taken =
        scheduler_.take(std::span(turn.segments).first(most), visit.inline_left, turn.time);
    visit.pieces_left -= turn.taken;
    visit.again = turn.taken == most;
    if (!visit.again) left_ = scheduler_.left();
  }
  turn.left = left_;
  turn.ended = scheduler_.take_ended();
  if (!options_.poller || !needs_poll()) return;
  // A left piece is news even to a poller that is awake: it may nap between two polls.
  turn.call_poller = poller_ != Poller::awake || (left_ && !left_before);
  turn.start_poller = poller_ == Poller::none;
  poller_ = Poller::awake;
}

// Ends a visit that entered no move, if another event came during it.
void MoverCore::leave_if_due(Visit& visit) {
  if (visit.outermost() && (visit.again || visit.reaped() > 0)) leave(visit);
}

// Ends a visit. The outermost visit submits the pieces it took, and looks again as long as needed.
bool MoverCore::leave(Visit& visit, Turn& turn) {
  if (!visit.outermost()) {
    visit.root().again = true;
    return false;
  }
  for (;;) {
    carry_out(visit, turn);
    if (!visit.again && visit.reaped() == 0) return turn.left;
    turn = Turn(TurnTime(*options_.clock));
    MutexLock lock(mutex_);
    take(visit, turn);
  }
}

bool MoverCore::leave(Visit& visit) {
  Turn turn(TurnTime(*options_.clock));
  if (visit.outermost()) {
    MutexLock lock(mutex_);
    take(visit, turn);
  }
  return leave(visit, turn);
}

// Engines that copy by themselves get their pieces first, so that no callback and no inline copy of
// this thread delays them.
void MoverCore::carry_out(Visit& visit, Turn& turn) {
  if (turn.start_poller) start_poller();
  if (turn.call_poller) {
    doorbell_.fetch_add(1);
    options_.waiting->wake_all(doorbell_);
  }
  std::array<Segment*, kBatch> inlined;
  std::size_t inlined_count = 0;
  std::size_t others = 0;
  for (Segment* segment : std::span(turn.segments).first(turn.taken)) {
    const bool here = copied_inline(*segment->queue, segment->length);
    (here ? inlined[inlined_count++] : turn.segments[others++]) = segment;
  }
  submit(std::span(turn.segments).first(others), visit);
  tell(turn.ended, visit);
  submit(std::span(inlined).first(inlined_count), visit);
}

// Submits pieces to their engines: those of one engine together and in order.
void MoverCore::submit(std::span<Segment*> segments, Visit& visit) {
  while (!segments.empty()) {
    const EngineState* engine = segments.front()->queue->engine;
    std::array<Segment*, kBatch> same;
    std::size_t same_count = 0;
    std::size_t others = 0;
    for (Segment* segment : segments) {
      (segment->queue->engine == engine ? same[same_count++] : segments[others++]) = segment;
    }
    offer(std::span(same).first(same_count), visit);
    segments = segments.first(others);
  }
}

// Offers pieces to their common engine. Accepted pieces may be gone when submit() returns.
void MoverCore::offer(std::span<Segment*> segments, Visit& visit) {
  // Raw memory, not an array of Piece: most submissions have one piece, and an array would
  // construct all.
  alignas(Piece) std::array<std::byte, kBatch * sizeof(Piece)> memory;
  auto* const pieces = reinterpret_cast<Piece*>(memory.data());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = *segments[i];
    const Move& move = *segment.move;
    const auto part = [&](const Extent& whole) {
      return move.list != nullptr ? whole : whole.part(segment.offset, Bytes{segment.length});
    };
    std::construct_at(pieces + i, Piece{.from = part(move.from),
                                        .to = part(move.to),
                                        .engine = segment.queue->engine->id,
                                        .hint = move.hint,
                                        .tag = reinterpret_cast<std::uintptr_t>(&segment),
                                        .cancelled = &move.stop,
                                        .list = move.list.get()});
  }
  EngineState& engine = *segments.front()->queue->engine;
  auto accepted = submit_to(*engine.backend, {pieces, segments.size()}, *this);
  if (accepted) {
    CHECK(*accepted <= segments.size());
    if (*accepted == segments.size()) return;
    const auto refused = segments.subspan(*accepted);
    visit.root().again = true;
    MutexLock lock(mutex_);
    const std::uint64_t seen = refused.front()->seen;
    for (std::size_t i = refused.size(); i-- > 0;) scheduler_.put_back(*refused[i]);
    scheduler_.stall(engine, seen);
  } else if (segments.size() == 1) {
    segments.front()->failure = std::move(accepted).error();
    visit.reap(*segments.front());
  } else {
    // One of the pieces is invalid; submitting each alone finds which.
    for (Segment*& segment : segments) offer({&segment, 1}, visit);
  }
}

void MoverCore::complete(std::uint64_t tag, Status outcome) noexcept {
  Segment& segment = *reinterpret_cast<Segment*>(tag);
  if (!outcome) segment.failure = std::move(outcome).error();
  Visit* const around = Visit::root_in(*this);
  if (around == nullptr) {
    const auto keep = shared_from_this();
    Visit visit(this, 0);
    visit.reap(segment);
    leave(visit);
    return;
  }
  around->reap(segment);
  if (around->reaped() < kMostReaped) return;
  around->again = true;
  Move* ended = nullptr;
  {
    MutexLock lock(mutex_);
    settle(*around);
    ended = scheduler_.take_ended();
  }
  tell(ended, *around);
}

// The scheduler has forgotten these moves, so no other thread writes to their fields.
void MoverCore::tell(Move* ended, Visit& visit) {
  if (ended == nullptr) return;
  const Nanoseconds now = options_.clock->now();
  while (ended != nullptr) {
    auto& scheduling = ended->scheduling;
    const Transfer transfer(std::move(scheduling.self));
    Move& move = *std::exchange(ended, ended->next_ended);
    Result<MoveStats> outcome;
    if (scheduling.failure) {
      outcome = Unexpected(*std::move(scheduling.failure));
    } else if (scheduling.cancelled) {
      outcome = Unexpected(error_in_words(
          ErrorCode::cancelled, "the move was cancelled; its destination is unspecified"));
    } else {
      scheduling.stats.queued = scheduling.first_taken.value_or(move.started) - move.started;
      scheduling.stats.total = now - move.started;
      outcome = std::move(scheduling.stats);
    }
    visit.call(move.finish(std::move(outcome), *options_.waiting), transfer);
    if (move.whole != nullptr) end_pair(*move.whole, visit);
  }
}

void MoverCore::call(const Transfer& done, Then then) {
  if (Visit* running = Visit::running()) {
    running->call(new Listener{.then = std::move(then)}, done);
  } else {
    Visit visit(nullptr, 0);
    visit.call_now(then, done);
  }
}

std::size_t MoverCore::poll(std::span<const std::byte> to, Nanoseconds most) {
  std::size_t found = 0;
  if (!advance(found) && found == 0 && most > Nanoseconds{0}) {
    found = help(to, most);
    if (found == 0) look(most, found);
  }
  return found;
}

// Polls, and does its share of the work. Returns whether more can be done at once.
bool MoverCore::advance(std::size_t& found) {
  if (!origin_.here()) return false;
  Visit visit(this, kMostInline);
  if (stopped_.load()) return false;
  for (Backend* backend : polled_) found += backend->poll();
  visit.root().retry_stalled = true;
  return leave(visit);
}

// Waits at most `most` for a move into `to`, in backends that are quicker with the help of the
// waiting thread. Copies nothing.
std::size_t MoverCore::help(std::span<const std::byte> to, Nanoseconds most) {
  if (helped_.empty() || to.empty() || most <= Nanoseconds{0} || !origin_.here()) return 0;
  Visit visit(this, 0);
  if (stopped_.load() || !visit.outermost()) return 0;
  std::size_t found = 0;
  // Equal shares, so that the clock is not read.
  const Nanoseconds share = std::min(most, kHelp) / static_cast<std::int64_t>(helped_.size());
  for (Backend* backend : helped_) {
    if (found == 0) found = backend->help(to, share);
  }
  leave(visit);
  return found;
}

// Looks whether engines have completed pieces, as long as that may be sooner than being woken.
// Returns when the next look is due, if one is.
std::optional<Nanoseconds> MoverCore::look(Nanoseconds most, std::size_t& found) {
  if (looked_.empty() || !origin_.here()) return std::nullopt;
  Visit visit(this, 0);
  if (stopped_.load() || !visit.outermost()) return std::nullopt;
  std::optional<Nanoseconds> again;
  for (Backend* backend : looked_) {
    if (found > 0) break;
    const Backend::Look looked = backend->look(std::min(most, kLookLong));
    found += looked.found;
    if (looked.again) again = std::min(again.value_or(*looked.again), *looked.again);
  }
  leave(visit);
  return again;
}

Result<MoveStats> MoverCore::wait(Move& move, Nanoseconds timeout) {
  if (move.done()) return copy_of(*move.outcome);
  HEADRACE_TRY_STATUS(origin_.check("the mover"));
  if (in_callback()) {
    return Unexpected(
        error_in_words(ErrorCode::invalid,
                       "wait() in a callback of a Mover would hold up the very move it waits for, "
                       "or another; use on_done() or co_await"));
  }
  Patience patience(*options_.clock, *options_.waiting, timeout);
  Backoff naps(kFirstNap, kLongestNap);
  Nanoseconds left = timeout;
  while (!move.done()) {
    const bool polls = waiters_poll_.load();
    std::size_t found = 0;
    const bool more = polls && advance(found);
    if (found == 0 && !more && !move.done()) found = help(move.target, left);
    std::optional<Nanoseconds> again;
    if (found == 0 && !more && !move.done()) again = look(left, found);
    if (found > 0) naps.reset();
    if (move.done()) break;
    left = patience.left();
    if (left <= Nanoseconds{0}) return not_done(move, *options_.clock);
    if (more || found > 0) continue;
    std::uint32_t seen = Move::kRunning;
    if (!move.word.compare_exchange_strong(seen, Move::kAwaited) && seen == Move::kDone) break;
    Nanoseconds nap = polls ? naps.next() : timeout;
    if (again) nap = std::min(nap, *again);
    patience.sleep(move.word, Move::kAwaited, nap);
    left = patience.left();
  }
  return copy_of(*move.outcome);
}

bool MoverCore::in_callback() { return Visit::any(); }

void MoverCore::stop() {
  CHECK(Visit::root_in(*this) == nullptr &&
        "a Mover must not be destroyed by a callback of its own");
  {
    Visit visit(this, 0);
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      scheduler_.cancel_all();
      for (Move* left = scheduler_.first_open(); left != nullptr; left = left->next_open) {
        cancel_in_flight(*left);
      }
    }
    leave(visit);
  }
  Patience patience(*options_.clock, *options_.waiting, options_.shutdown_bound);
  Backoff naps(kFirstNap, kLongestNap);
  // The destructor is not woken: naps are short, and so the last thread that leaves touches nothing
  // more.
  const std::atomic<std::uint32_t> never{0};
  const auto quiet = [this] {
    MutexLock lock(mutex_);
    return scheduler_.quiet();
  };
  while (!quiet()) {
    CHECK(!patience.over() && "pieces in flight ended within the shutdown bound");
    std::size_t found = 0;
    if (advance(found) || found > 0) continue;
    patience.sleep(never, 0, naps.next());
  }
  stopped_.store(true);
  while (!inside_.nobody()) {
    CHECK(!patience.over() && "callbacks returned within the shutdown bound");
    patience.sleep(never, 0, naps.next());
  }
  doorbell_.fetch_add(1);
  options_.waiting->wake_all(doorbell_);
  std::thread poller;
  {
    MutexLock lock(mutex_);
    poller = std::move(poller_thread_);
  }
  if (poller.joinable()) join(poller);
}

MoverStats MoverCore::stats() const {
  if (!origin_.here()) return {};
  std::vector<std::string> degraded;
  for (const auto* const some : {&polled_, &others_}) {
    for (const Backend* const backend : *some) {
      for (std::string& line : backend->degraded()) degraded.push_back(std::move(line));
    }
  }
  MutexLock lock(mutex_);
  MoverStats stats = scheduler_.stats();
  stats.degraded = std::move(degraded);
  const Inside::Copies copies = inside_.copies();
  stats.transfers += copies.count;
  stats.pieces += copies.count;
  stats.bytes += Bytes{copies.bytes};
  return stats;
}

// The poller is started on first need. Backends that complete by themselves need it only if a visit
// leaves work, or if a backend refuses pieces while none of ours is in flight there.
void MoverCore::start_poller() {
  if (auto thread = start_thread("headrace-poll", [this] { run_poller(); })) {
    waiters_poll_.store(false);
    MutexLock lock(mutex_);
    poller_thread_ = *std::move(thread);
  } else {
    // No thread could be started. Until a later visit can start one, waiting threads poll for
    // themselves, and so may the user.
    waiters_poll_.store(true);
    MutexLock lock(mutex_);
    poller_ = Poller::none;
  }
}

void MoverCore::run_poller() {
  Backoff naps(kFirstNap, kLongestNap);
  for (;;) {
    const std::uint32_t seen = doorbell_.load();
    if (stopped_.load()) return;
    bool needed = false;
    {
      MutexLock lock(mutex_);
      needed = needs_poll();
      poller_ = needed ? Poller::awake : Poller::asleep;
    }
    std::size_t found = 0;
    if (!needed) {
      naps.reset();
      options_.waiting->wait(doorbell_, seen, kLook);
    } else if (advance(found) || found > 0) {
      naps.reset();
    } else {
      options_.waiting->wait(doorbell_, seen, naps.next());
    }
  }
}

}  // namespace headrace
