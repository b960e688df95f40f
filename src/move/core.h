// What a Mover is inside: the scheduler under one lock, and the loop that submits what it allows.
//
// Everything that may change what can be submitted (a new move, a completion, a cancellation, a
// poll) is a visit. A visit changes the scheduler's state under the lock; the outermost visit of a
// thread then submits, outside the lock, until the scheduler gives nothing more. A completion that
// arrives inside submit() or poll() is a visit inside a visit: it only changes the state, and the
// outermost one goes round again. So the stack stays flat however many pieces complete inline, and
// no wake-up is lost.
//
// Thread-safe. Kept alive by its Mover, its open moves and their handles.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "move/scheduler.h"

namespace headrace {

class MoverCore final : public Completion, public std::enable_shared_from_this<MoverCore> {
 public:
  MoverCore(const Machine& machine, const Backends& backends, MoverOptions options);

  Transfer copy(Extent to, Extent from, const MoveOptions& options);
  std::size_t poll();
  void promote(Move& move, Priority priority);
  void cancel(Move& move);
  bool in_callback() const;
  Result<MoveStats> wait(Move& move, Nanoseconds timeout);
  // Calls `then` with the outcome of a move that is done, or keeps it.
  void on_done(const std::shared_ptr<Move>& move, Then then);
  // Cancels, waits for what is in flight; afterwards no backend is touched again.
  void stop();
  MoverStats stats() const;

  void complete(std::uint64_t tag, Status outcome) noexcept override;

  const Machine& machine() const { return machine_; }
  // Whose threads and locks its own are.
  const Origin& origin() const { return origin_; }
  const MoverOptions& options() const { return options_; }

 private:
  class Visit;

  Result<std::shared_ptr<const Route>> ask(const RoutePolicy& policy, const Extent& to,
                                           const Extent& from) const noexcept;
  Result<std::shared_ptr<const Route>> route_of(const Extent& to, const Extent& from,
                                                const MoveOptions& options) EXCLUDES(mutex_);
  Status enter(const std::shared_ptr<Move>& move, const MoveOptions& options) EXCLUDES(mutex_);
  void leave(Visit& visit) EXCLUDES(mutex_);
  void submit(std::span<Segment*> segments, Visit& visit) EXCLUDES(mutex_);
  void offer(std::span<Segment*> segments, Visit& visit) EXCLUDES(mutex_);
  void put_back(std::span<Segment*> segments, EngineState& engine, Visit& visit) EXCLUDES(mutex_);
  void tell(const std::shared_ptr<Move>& move, Visit& visit) EXCLUDES(mutex_);
  void settle(Segment& segment, Status outcome, Visit& visit) EXCLUDES(mutex_);
  void call_poller() REQUIRES(mutex_);
  void run_poller() EXCLUDES(mutex_);

  // Immutable after construction.
  const Origin origin_;
  const Machine& machine_;
  const MoverOptions options_;
  std::vector<Backend*> polled_;  // those that do not complete by themselves

  mutable Mutex mutex_;
  MoveScheduler scheduler_ GUARDED_BY(mutex_);
  std::size_t visitors_ GUARDED_BY(mutex_) = 0;  // threads in an outermost visit
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
  enum class Poller { none, awake, asleep };
  Poller poller_ GUARDED_BY(mutex_) = Poller::none;
  std::thread poller_thread_ GUARDED_BY(mutex_);

  std::atomic<bool> waiters_poll_;          // there is no poller thread
  std::atomic<std::uint32_t> doorbell_{0};  // changes when the poller should look
  std::atomic<std::uint32_t> quiet_{0};     // changes when stop() should look
};

}  // namespace headrace
