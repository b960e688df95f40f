// SPDX-License-Identifier: Apache-2.0
// The core of a Mover: the scheduler under one lock, and the loop that submits what it allows.
//
// Every event that may change what can be submitted (a new move, a completion, a cancellation, a
// poll) is a visit. A visit changes the scheduler's state under the lock. The outermost visit of a
// thread then submits, outside the lock, until the scheduler returns no more pieces or the visit
// has done its share.
//
// A completion inside submit() or poll() is a visit inside a visit. It only notes the piece; the
// outermost visit settles all noted pieces under one lock and looks again. So the stack stays flat
// however many pieces complete inline, and no wake-up is lost.
//
// Work that a visit leaves is noted in left_: its share was used up, or it must not copy inline.
// The poller does this work; without a poller, threads that wait or call poll() do.
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
#include "move/inline_routes.h"
#include "move/inside.h"
#include "move/scheduler.h"

namespace headrace {

// Errors: invalid: an option out of range, or extents that cannot be copied.
Status check_options(const MoverOptions& options);
Status check_request(const Extent& to, const Extent& from);

// An engine that copies many pairs between a GPU and memory as one piece of at most `piece` bytes.
struct Lister {
  NodeId gpu{};
  EngineId engine{};
  Backend* backend = nullptr;
  Bytes piece;
};

class MoverCore final : public Completion, public std::enable_shared_from_this<MoverCore> {
 public:
  MoverCore(const Machine& machine, const Backends& backends, MoverOptions options);

  Transfer copy(Extent to, Extent from, const MoveOptions& options);
  Transfer copy(std::span<const MovePair> pairs, const MoveOptions& options);
  void copy(std::span<const MovePair> pairs, std::span<Transfer> transfers,
            const MoveOptions& options);
  std::size_t poll(std::span<const std::byte> to, Nanoseconds most);
  void promote(Move& move, Priority priority);
  void cancel(Move& move);
  // Whether this thread is inside a visit of any Mover.
  static bool in_callback();
  Result<MoveStats> wait(Move& move, Nanoseconds timeout);
  // Cancels all moves and waits for pieces in flight. Afterwards no backend is called again.
  void stop();
  MoverStats stats() const;

  void complete(std::uint64_t tag, Status outcome) noexcept override;

  // Calls `then` with the outcome of a transfer that is done; inside another callback, after that
  // one has returned. If it throws std::bad_alloc, `then` will not be called.
  static void call(const Transfer& done, Then then);

  const Machine& machine() const { return machine_; }
  // The process whose threads and locks these are.
  const Origin& origin() const { return origin_; }
  const MoverOptions& options() const { return options_; }

 private:
  class Visit;
  struct Turn;

  bool copy_at_once(const Extent& to, const Extent& from, EngineId engine, CopyHint hint,
                    Turn& turn) EXCLUDES(mutex_);
  Status open(const std::shared_ptr<Move>& move, const MoveOptions& options, Visit& visit,
              Turn& turn) EXCLUDES(mutex_);
  std::shared_ptr<Move> make_batch(std::span<const MovePair> pairs, const MoveOptions& options);
  std::size_t count_listed(std::span<const MovePair> pairs) const;
  Status open_list(const std::shared_ptr<Move>& move) EXCLUDES(mutex_);
  void begin_pair(Move& pair, const MoveOptions& options, Visit& visit) EXCLUDES(mutex_);
  void end_pair(Move& whole, Visit& visit) EXCLUDES(mutex_);
  template <class Change>
  void change(Move& move, const Change& change) EXCLUDES(mutex_);
  void cancel_in_flight(Move& move) REQUIRES(mutex_);
  void settle(Visit& visit) REQUIRES(mutex_);
  void take(Visit& visit, Turn& turn) REQUIRES(mutex_);
  // Returns whether work was left that may be done at once.
  bool leave(Visit& visit) EXCLUDES(mutex_);
  bool leave(Visit& visit, Turn& turn) EXCLUDES(mutex_);
  void carry_out(Visit& visit, Turn& turn) EXCLUDES(mutex_);
  void submit(std::span<Segment*> segments, Visit& visit) EXCLUDES(mutex_);
  void offer(std::span<Segment*> segments, Visit& visit) EXCLUDES(mutex_);
  void tell(Move* ended, Visit& visit) EXCLUDES(mutex_);
  bool advance(std::size_t& found) EXCLUDES(mutex_);
  std::size_t help(std::span<const std::byte> to, Nanoseconds most) EXCLUDES(mutex_);
  std::optional<Nanoseconds> look(Nanoseconds most, std::size_t& found) EXCLUDES(mutex_);
  void leave_if_due(Visit& visit) EXCLUDES(mutex_);
  bool needs_poll() const REQUIRES(mutex_) { return left_ || scheduler_.needs_poll(); }
  void start_poller() EXCLUDES(mutex_);
  void run_poller() EXCLUDES(mutex_);

  // Immutable after construction.
  const Origin origin_;
  const Machine& machine_;
  const MoverOptions options_;
  std::vector<Backend*> polled_;     // backends that need poll() to complete
  std::vector<Backend*> others_;     // backends that complete by themselves
  std::vector<Backend*> helped_;     // backends for which help() is quicker
  std::vector<Backend*> looked_;     // backends for which look() is quicker
  std::vector<Backend*> by_engine_;  // index: raw(EngineId)
  std::vector<Lister> listers_;

  mutable Mutex mutex_;
  MoveScheduler scheduler_ GUARDED_BY(mutex_);
  bool left_ GUARDED_BY(mutex_) = false;  // a piece can be taken that the last visit did not take
  enum class Poller { none, awake, asleep };
  Poller poller_ GUARDED_BY(mutex_) = Poller::none;
  std::thread poller_thread_ GUARDED_BY(mutex_);

  InlineRoutes inline_routes_;
  Inside inside_;                           // threads in an outermost visit or in copy_at_once()
  std::atomic<bool> stopping_{false};       // no move may be started
  std::atomic<bool> stopped_{false};        // no backend may be called
  std::atomic<bool> waiters_poll_;          // there is no poller thread
  std::atomic<std::uint32_t> doorbell_{0};  // changes when the poller must look
};

}  // namespace headrace
