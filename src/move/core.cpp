#include "move/core.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "core/waiting/backoff.h"
#include "core/waiting/duration.h"
#include "core/waiting/patience.h"

namespace headrace {
namespace {

// Pieces submitted per turn of the loop: enough to make a submission's fixed cost small, few enough
// that a demand arriving meanwhile is not far behind.
constexpr std::size_t kBatch = 16;

// Between two polls that found nothing: short at first, since most pieces take tens of
// microseconds, then longer, so that a slow device costs little CPU time.
constexpr Nanoseconds kFirstNap = std::chrono::microseconds{10};
constexpr Nanoseconds kLongestNap = std::chrono::microseconds{200};
// Bound of sleeps that something is known to end; only limits the damage if it did not.
constexpr Nanoseconds kLook = std::chrono::milliseconds{200};

bool overlap(const Extent& a, const Extent& b) {
  if (a.object == b.object) return a.offset < b.end() && b.offset < a.end();
  const std::byte* at = a.memory();
  const std::byte* bt = b.memory();
  if (at == nullptr || bt == nullptr) return false;
  return at < bt + b.length.value && bt < at + a.length.value;
}

Status check_request(const Extent& to, const Extent& from) {
  for (const Extent* side : {&to, &from}) {
    if (side->valid()) continue;
    if (side->object == nullptr) return fail(ErrorCode::invalid, "an extent of no object; set it");
    return fail(ErrorCode::invalid, "extent [{}, +{}) is not inside its object of {}; shorten it",
                side->offset, side->length.value, to_string(side->object->size()));
  }
  if (to.length != from.length) {
    return fail(ErrorCode::invalid, "cannot copy {} bytes to an extent of {}; make them equal",
                from.length.value, to.length.value);
  }
  if (to.length > 0_B && overlap(to, from)) {
    return fail(ErrorCode::invalid,
                "source and destination overlap; copy through a third extent instead");
  }
  return {};
}

}  // namespace

// One call into the core by one thread. The visits of a thread, of all movers, form a chain.
class MoverCore::Visit {
 public:
  explicit Visit(MoverCore& core) : core_(core), below_(top) {
    for (Visit* visit = top; visit != nullptr; visit = visit->below_) {
      if (&visit->core_ == &core) root_ = visit->root_;
    }
    top = this;
  }
  ~Visit() { top = below_; }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  bool outermost() const { return root_ == this; }
  // Runs callbacks of a move, or, inside another callback, leaves them to the loop that runs that
  // one: a chain of moves that end each other must not grow the stack either.
  void run(const std::shared_ptr<Move>& move, std::vector<Then> thens) {
    if (thens.empty()) return;
    root_->waiting_.push_back({move, std::move(thens)});
    if (std::exchange(root_->running_, true)) return;
    while (!root_->waiting_.empty()) {
      std::vector<Told> told;
      told.swap(root_->waiting_);
      for (Told& one : told) {
        for (Then& then : one.thens) call(then, *one.move->outcome);
      }
    }
    root_->running_ = false;
  }
  // Nothing of the user's runs inside a visit but callbacks and policies.
  static bool inside(const MoverCore& core) {
    for (Visit* visit = top; visit != nullptr; visit = visit->below_) {
      if (&visit->core_ == &core) return true;
    }
    return false;
  }

 private:
  struct Told {
    std::shared_ptr<Move> move;
    std::vector<Then> thens;
  };
  // noexcept: an exception would leave the scheduler between two states, so it ends the program.
  static void call(Then& then, const Result<MoveStats>& outcome) noexcept { then(outcome); }
  static thread_local Visit* top;
  MoverCore& core_;
  Visit* const below_;
  Visit* root_ = this;
  bool running_ = false;
  std::vector<Told> waiting_;
};

thread_local MoverCore::Visit* MoverCore::Visit::top = nullptr;

MoverCore::MoverCore(const Machine& machine, const Backends& backends, MoverOptions options)
    : machine_(machine),
      options_(std::move(options)),
      scheduler_(machine, backends, options_.piece, options_.in_flight_per_link),
      waiters_poll_(!options_.poller) {
  for (const auto& backend : backends.all()) {
    if (!backend->capabilities().completes_itself) polled_.push_back(backend.get());
  }
}

Result<std::shared_ptr<const Route>> MoverCore::ask(const RoutePolicy& policy, const Extent& to,
                                                    const Extent& from) const noexcept {
  const RouteRequest request{
      .from = from.object->node(), .to = to.object->node(), .bytes = from.length};
  HEADRACE_TRY(Route route, policy(machine_, request));
  std::uint64_t at = 0;
  for (const RoutePart& part : route.parts) {
    if (part.offset != at || part.length.value > from.length.value - at) {
      return fail(ErrorCode::invalid, "the route does not cover the move in order at byte {}; {}",
                  at, "repair its policy");
    }
    at += part.length.value;
  }
  if (at != from.length.value) {
    return fail(ErrorCode::invalid, "the route covers {} of {} bytes; repair its policy", at,
                from.length.value);
  }
  return std::make_shared<const Route>(std::move(route));
}

Result<std::shared_ptr<const Route>> MoverCore::route_of(const Extent& to, const Extent& from,
                                                         const MoveOptions& options) {
  if (options.route) return ask(*options.route, to, from);
  {
    MutexLock lock(mutex_);
    Link& link = scheduler_.link(from.object->node(), to.object->node());
    if (auto known = link.route_for(from.length)) return known;
  }
  HEADRACE_TRY(std::shared_ptr<const Route> route, ask(options_.route, to, from));
  MutexLock lock(mutex_);
  scheduler_.link(from.object->node(), to.object->node()).remember(from.length, route);
  return route;
}

Status MoverCore::enter(const std::shared_ptr<Move>& move, const MoveOptions& options) {
  HEADRACE_TRY_STATUS(check_request(move->to, move->from));
  if (move->to.length == 0_B) return {};
  HEADRACE_TRY(const auto route, route_of(move->to, move->from, options));
  MutexLock lock(mutex_);
  if (stopping_) return fail(ErrorCode::cancelled, "the mover is being destroyed; start no moves");
  Link& link = scheduler_.link(move->from.object->node(), move->to.object->node());
  return scheduler_.open(move, link, *route);
}

Transfer MoverCore::copy(Extent to, Extent from, const MoveOptions& options) {
  auto move = std::make_shared<Move>(shared_from_this(), to, from, options, options_.clock->now());
  if (Status ours = origin_.check("the mover"); !ours) {
    move->finish(std::unexpected<Error>(std::move(ours).error()), *options_.waiting);
    return Transfer(std::move(move));
  }
  Visit visit(*this);
  if (visit.outermost()) {
    MutexLock lock(mutex_);
    ++visitors_;
  }
  if (Status entered = enter(move, options); !entered) {
    move->finish(std::unexpected<Error>(std::move(entered).error()), *options_.waiting);
    MutexLock lock(mutex_);
    scheduler_.count_without_work(true);
  } else if (to.length == 0_B) {
    move->finish(MoveStats{}, *options_.waiting);
    MutexLock lock(mutex_);
    scheduler_.count_without_work(false);
  }
  leave(visit);
  return Transfer(std::move(move));
}

// The end of a visit: the outermost one submits until the scheduler gives nothing more.
void MoverCore::leave(Visit& visit) {
  if (!visit.outermost()) return;
  for (;;) {
    std::array<Segment*, kBatch> segments;
    std::size_t taken = 0;
    {
      MutexLock lock(mutex_);
      taken = scheduler_.take(segments, *options_.clock);
      const bool call = options_.poller && scheduler_.needs_poll() && poller_ != Poller::awake;
      if (taken == 0 && !call) {
        --visitors_;
        // Under the lock: once it is let go, stop() may return and `waiting` be gone.
        if (stopping_ && visitors_ == 0 && scheduler_.quiet()) {
          quiet_.fetch_add(1);
          options_.waiting->wake_all(quiet_);
        }
        return;
      }
      if (call) call_poller();
    }
    submit(std::span(segments).first(taken), visit);
  }
}

// Hands pieces to their engines, those of one engine together and in order.
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

// Offers pieces to their one engine. Those accepted may be gone when submit() returns.
void MoverCore::offer(std::span<Segment*> segments, Visit& visit) {
  std::array<Piece, kBatch> pieces;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = *segments[i];
    const Move& move = *segment.move;
    pieces[i] = {.from = move.from.part(segment.offset, Bytes{segment.length}),
                 .to = move.to.part(segment.offset, Bytes{segment.length}),
                 .engine = segment.queue->engine->id,
                 .hint = move.hint,
                 .tag = reinterpret_cast<std::uintptr_t>(&segment)};
  }
  EngineState& engine = *segments.front()->queue->engine;
  const auto accepted = engine.backend->submit(std::span(pieces).first(segments.size()), *this);
  if (accepted) {
    CHECK(*accepted <= segments.size());
    if (*accepted < segments.size()) put_back(segments.subspan(*accepted), engine, visit);
  } else if (segments.size() == 1) {
    settle(*segments.front(), std::unexpected<Error>(accepted.error()), visit);
  } else {
    // One of them is at fault; one at a time tells which.
    for (Segment*& segment : segments) offer({&segment, 1}, visit);
  }
}

void MoverCore::put_back(std::span<Segment*> segments, EngineState& engine, Visit& visit) {
  std::vector<std::shared_ptr<Move>> ended;
  {
    MutexLock lock(mutex_);
    const std::uint64_t seen = segments.front()->seen;
    for (std::size_t i = segments.size(); i-- > 0;) {
      if (auto move = scheduler_.put_back(*segments[i])) ended.push_back(std::move(move));
    }
    scheduler_.stall(engine, seen);
  }
  for (const auto& move : ended) tell(move, visit);
}

void MoverCore::complete(std::uint64_t tag, Status outcome) noexcept {
  Visit visit(*this);
  std::shared_ptr<MoverCore> keep;
  if (visit.outermost()) {
    keep = shared_from_this();
    MutexLock lock(mutex_);
    ++visitors_;
  }
  settle(*reinterpret_cast<Segment*>(tag), std::move(outcome), visit);
  leave(visit);
}

void MoverCore::settle(Segment& segment, Status outcome, Visit& visit) {
  std::shared_ptr<Move> ended;
  {
    MutexLock lock(mutex_);
    ended = scheduler_.settle(segment, std::move(outcome));
  }
  if (ended != nullptr) tell(ended, visit);
}

// The scheduler has forgotten the move: nobody else writes to its fields.
void MoverCore::tell(const std::shared_ptr<Move>& move, Visit& visit) {
  auto& scheduling = move->scheduling;
  Result<MoveStats> outcome = [&]() -> Result<MoveStats> {
    if (scheduling.failure) return std::unexpected<Error>(std::move(*scheduling.failure));
    if (scheduling.cancelled) {
      return fail(ErrorCode::cancelled, "the move was cancelled; its destination is unspecified");
    }
    scheduling.stats.queued = scheduling.first_taken.value_or(move->started) - move->started;
    scheduling.stats.total = options_.clock->now() - move->started;
    return std::move(scheduling.stats);
  }();
  visit.run(move, move->finish(std::move(outcome), *options_.waiting));
}

std::size_t MoverCore::poll() {
  if (!origin_.here()) return 0;
  Visit visit(*this);
  {
    MutexLock lock(mutex_);
    if (stopped_) return 0;
    if (visit.outermost()) ++visitors_;
    scheduler_.retry_stalled();
  }
  std::size_t found = 0;
  for (Backend* backend : polled_) found += backend->poll();
  leave(visit);
  return found;
}

void MoverCore::promote(Move& move, Priority priority) {
  if (!origin_.here()) return;
  Visit visit(*this);
  {
    MutexLock lock(mutex_);
    if (move.done() || stopped_) return;
    if (visit.outermost()) ++visitors_;
    scheduler_.promote(move, priority);
  }
  leave(visit);
}

void MoverCore::cancel(Move& move) {
  if (!origin_.here()) return;
  Visit visit(*this);
  std::shared_ptr<Move> ended;
  {
    MutexLock lock(mutex_);
    if (move.done() || stopped_) return;
    if (visit.outermost()) ++visitors_;
    ended = scheduler_.cancel(move);
  }
  if (ended != nullptr) tell(ended, visit);
  leave(visit);
}

Result<MoveStats> MoverCore::wait(Move& move, Nanoseconds timeout) {
  if (move.done()) return *move.outcome;
  HEADRACE_TRY_STATUS(origin_.check("the mover"));
  if (in_callback()) {
    return fail(ErrorCode::invalid,
                "wait() in a callback of the Mover would hold up the very move "
                "it waits for; use on_done() or co_await");
  }
  Patience patience(*options_.clock, *options_.waiting, timeout);
  Backoff naps(kFirstNap, kLongestNap);
  while (!move.done()) {
    const bool help = waiters_poll_.load();
    if (help && poll() > 0) {
      naps.reset();
      if (move.done()) break;
    }
    if (patience.over()) {
      return fail(ErrorCode::timed_out,
                  "a move of {} is not done after {}; it goes on, so wait again or cancel it",
                  to_string(move.to.length), to_string(options_.clock->now() - move.started));
    }
    std::uint32_t seen = Move::kRunning;
    if (!move.word.compare_exchange_strong(seen, Move::kAwaited) && seen == Move::kDone) break;
    patience.sleep(move.word, Move::kAwaited, help ? naps.next() : timeout);
  }
  return *move.outcome;
}

// A callback called at once is a visit too: one that starts the next move, which may end inside
// copy() and call back at once, does not grow the stack.
void MoverCore::on_done(const std::shared_ptr<Move>& move, Then then) {
  if (!origin_.here()) return then(wait(*move, Nanoseconds{0}));
  if (move->add(then)) return;
  Visit visit(*this);
  bool stopped = false;
  if (visit.outermost()) {
    MutexLock lock(mutex_);
    stopped = stopped_;
    visitors_ += !stopped;
  }
  std::vector<Then> thens;
  thens.push_back(std::move(then));
  visit.run(move, std::move(thens));
  if (!stopped) leave(visit);
}

bool MoverCore::in_callback() const { return Visit::inside(*this); }

void MoverCore::stop() {
  CHECK(!in_callback() && "a Mover must not be destroyed by a callback of its own");
  {
    Visit visit(*this);
    std::vector<std::shared_ptr<Move>> ended;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      ++visitors_;
      ended = scheduler_.cancel_all();
    }
    for (const auto& move : ended) tell(move, visit);
    leave(visit);
  }
  Patience patience(*options_.clock, *options_.waiting, options_.shutdown_bound);
  Backoff naps(kFirstNap, kLongestNap);
  for (;;) {
    const std::uint32_t seen = quiet_.load();
    {
      MutexLock lock(mutex_);
      if (visitors_ == 0 && scheduler_.quiet()) {
        stopped_ = true;
        break;
      }
    }
    CHECK(!patience.over() && "pieces in flight ended within the shutdown bound");
    if (poll() > 0) continue;
    patience.sleep(quiet_, seen, naps.next());
  }
  doorbell_.fetch_add(1);
  options_.waiting->wake_all(doorbell_);
  std::thread poller;
  {
    MutexLock lock(mutex_);
    poller = std::move(poller_thread_);
  }
  if (poller.joinable()) poller.join();
}

MoverStats MoverCore::stats() const {
  if (!origin_.here()) return {};
  MutexLock lock(mutex_);
  return scheduler_.stats();
}

// The poller is started when it is first needed: backends that complete by themselves never need
// it, unless one refuses pieces while nothing of ours is in flight there.
void MoverCore::call_poller() {
  if (poller_ == Poller::none) {
    if (auto thread = start_thread("headrace-poll", [this] { run_poller(); })) {
      poller_thread_ = *std::move(thread);
    } else {
      // No thread to be had: those who wait poll for themselves, and so may the user.
      waiters_poll_.store(true);
    }
  }
  poller_ = Poller::awake;
  doorbell_.fetch_add(1);
  options_.waiting->wake_all(doorbell_);
}

void MoverCore::run_poller() {
  Backoff naps(kFirstNap, kLongestNap);
  for (;;) {
    const std::uint32_t seen = doorbell_.load();
    bool needed = false;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      needed = scheduler_.needs_poll();
      poller_ = needed ? Poller::awake : Poller::asleep;
    }
    if (!needed) {
      naps.reset();
      options_.waiting->wait(doorbell_, seen, kLook);
    } else if (poll() > 0) {
      naps.reset();
    } else {
      options_.waiting->wait(doorbell_, seen, naps.next());
    }
  }
}

}  // namespace headrace
