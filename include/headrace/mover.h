// SPDX-License-Identifier: Apache-2.0
// Moves extents between memories, GPUs and files: asks a route, submits pieces to engines, retries
// a failed piece on another engine, and reports the end.
//
//   const Transfer move = mover.copy(to, from, {.priority = Priority::prefetch});
//   const Result<MoveStats> stats = move.wait();  // or on_done(), co_await, event_fd()
//
// The Mover does not choose destinations (place) and does not remember moves (cache). Cores, DMA
// engines and SSD queues copy; the Mover itself uses no core while it waits.
//
// Work is done by engines and by calling threads:
// - `copy()`, `poll()` and `wait()` submit at most 64 pieces, from any move, pieces for engines
//   that copy by themselves first. They copy at most 16 queued pieces themselves, where the engine
//   copies inside submit() (Capabilities::inline_below). `wait()` does this each time before it
//   checks its timeout.
// - Backend threads that report a completion, `promote()` and `cancel()` submit at most 64 pieces
//   too, but never copy.
// - The Mover's own thread does the rest (MoverOptions::poller).
//
// Mover is Thread-safe. Transfer is Thread-compatible; copies of one may be used by many threads.
//
// Without memory a move fails as exhausted; a move that has begun needs no memory to end. Only
// on_done() and co_await throw std::bad_alloc, and then have no effect. The first of these calls
// for a move that is not done allocates nothing if the callback itself allocates nothing (at most
// two pointers).
//
// A Mover belongs to the process that made it: in a child of fork(), copies fail as unsupported
// (docs/design/fork.md).
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/backend.h"
#include "headrace/clock.h"
#include "headrace/export.h"
#include "headrace/object.h"
#include "headrace/result.h"
#include "headrace/route.h"
#include "headrace/units.h"
#include "headrace/waiting.h"

namespace HEADRACE_API headrace {

class CacheShards;
class MoverCore;
struct Move;

// The order in which moves are served when a pair of nodes is full. A waiting lower class gets
// every eighth piece, so no class starves. Exception: on a storage device beside demand, it waits
// until its share of the bytes in flight is free (MoverOptions::in_flight_per_link).
enum class Priority : std::uint8_t { demand, prefetch, migration };

std::string_view to_string(Priority priority);

struct MoveOptions {
  Priority priority = Priority::demand;
  CopyHint hint = CopyHint::automatic;
  // Replaces the Mover's route policy.
  std::optional<RoutePolicy> route = {};
};

// The result of a move.
struct MoveStats {
  Bytes bytes;
  std::uint32_t pieces = 0;
  std::uint32_t retries = 0;      // pieces that failed on an engine and were retried on another
  Nanoseconds queued{0};          // from copy() until the first piece was accepted
  Nanoseconds total{0};           // from copy() until the last piece was done
  std::vector<EngineId> engines;  // the engines that moved a piece, ascending
};

// A handle of one asynchronous move; copies of the handle share the move. Dropping all handles
// neither cancels nor waits. The memory and objects of both sides must live until the move is done.
class Transfer {
 public:
  Transfer() = default;  // done, with no bytes

  // True once nothing more is written and the outcome is known.
  bool done() const;
  // True once an engine has a part of the move, or the move is done.
  bool begun() const;
  // Blocks until the move is done, at most `timeout`.
  // Errors: timed_out: not done yet; the move continues, so wait again. cancelled: the move was
  // cancelled. invalid: the move is not done, and this thread is in a callback of some Mover, which
  // may block the move. Otherwise: the error of the piece that failed last.
  Result<MoveStats> wait(Nanoseconds timeout = std::chrono::seconds{60}) const;
  // The outcome if done.
  std::optional<Result<MoveStats>> poll() const;
  // MoveStats::total of a move that ended without an error; otherwise 0.
  Nanoseconds took() const;
  // The number of pairs, and the outcome of pair `index` once that pair has ended. After that
  // nothing more is written to the pair. It may end long before the whole move. A move of one
  // extent is one pair. Requires: index < size().
  std::size_t size() const;
  std::optional<Status> poll(std::size_t index) const;
  // Moves the queued pieces to the end of a more urgent class, for a move made ahead that a thread
  // now waits for. A less urgent class changes nothing.
  void promote(Priority priority) const;
  // Stops the move: drops queued pieces, and asks engines to end pieces in flight early
  // (Backend::cancel). The move is done when these have ended. No effect on a move that is done.
  void cancel() const;
  // An eventfd that becomes and stays readable when the move is done: for epoll, io_uring, asyncio.
  // Reading it is harmless and not needed.
  // The move owns the eventfd, which is valid while a handle lives. If the move was done when
  // copy() returned, this handle and later copies of it own the eventfd.
  // A thread that sleeps on it in epoll_wait() may get EINTR without a signal when a small read
  // ends that the thread started itself: call epoll_wait() again.
  // Errors: exhausted: no file descriptor is free.
  Result<int> event_fd() const;
  // Calls `then` once with the outcome: in the thread that ends the move, or at once in this thread
  // if the move is done.
  // - The thread that ends a move is a backend's, the Mover's own, or any that calls copy(),
  //   poll(), wait(), cancel(), or access() of a Cache. `then` must not block it.
  // - Several callbacks are called in order.
  // - A callback that is due inside another callback of the same Mover runs after that one has
  //   returned, so that chains of moves do not grow the stack. The same holds inside any callback
  //   if the move was done already.
  // - `then` must not destroy the Mover, must not wait for a move of any Mover, and must not throw:
  //   an exception ends the program.
  void on_done(std::function<void(const Result<MoveStats>&)> then) const;

  // co_await transfer: resumes in the thread that ends the move, as a callback of on_done() does. A
  // coroutine must not be destroyed while it is suspended here.
  bool await_ready() const { return done(); }
  bool await_suspend(std::coroutine_handle<> waiter) const;
  Result<MoveStats> await_resume() const;

 private:
  friend class MoverCore;
  explicit Transfer(std::shared_ptr<Move> move) : move_(std::move(move)) {}
  // The outcome of a move that was done when copy() returned: empty, one piece, or no memory.
  struct Ended {
    Bytes bytes;
    Nanoseconds total{0};
    EngineId engine{};
    bool moved = false;
    bool exhausted = false;
    std::size_t pairs = 1;
  };
  explicit Transfer(const Ended& ended) : ended_(ended) {}
  std::shared_ptr<Move> move_;  // null: see ended_
  Ended ended_;
  mutable std::shared_ptr<const int> descriptor_;  // used if move_ is null; made by event_fd()
};

// Longer than the 160 s after which storage, the slowest backend, gives up a piece.
inline constexpr Nanoseconds kShutdownBound = std::chrono::seconds{200};

struct MoverOptions {
  // Pure and not empty: the Mover remembers its answers for each pair of nodes and size.
  RoutePolicy route = place::measured;
  // Largest size of a piece, also limited by the engine's maximum; not 0.
  // Default: between memories the engine's preference (Capabilities::piece), else 1 MiB.
  std::optional<Bytes> piece = {};
  // Bound on the bytes in flight between one pair of nodes, so that queues stay short and demand
  // overtakes prefetch. At least one piece is always allowed. Beside demand, a storage device has
  // less urgent pieces in flight only up to an eighth of the bound plus one piece.
  // Default: between memories the engine's preference (Capabilities::in_flight), else 16 MiB.
  std::optional<Bytes> in_flight_per_link = {};
  const Clock* clock = &system_clock();
  Waiting* waiting = &system_waiting();
  // Whether a thread of the Mover polls backends that do not complete by themselves, and does the
  // work that calls leave. The thread sleeps when there is neither. If false, threads that wait or
  // call poll() do this work.
  bool poller = true;
  // How long the destructor waits for pieces in flight before it ends the process (CHECK): memory
  // that an engine may still write to must not be freed. Must exceed every backend's own bound for
  // a piece (Backend::submit); more than 0.
  Nanoseconds shutdown_bound = kShutdownBound;
};

// Totals since the Mover was made.
struct MoverStats {
  std::uint64_t transfers = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t pieces = 0;
  std::uint64_t retries = 0;
  Bytes bytes;
  std::uint64_t in_flight_pieces = 0;
  std::uint64_t queued_pieces = 0;
  std::vector<std::string> degraded;  // limitations of its backends (Backend::degraded)
};

class Mover {
 public:
  // Borrows `machine` and `backends`, which must outlive the Mover. If an option is out of range,
  // each copy fails as invalid with a message that names the option.
  Mover(const Machine& machine, const Backends& backends, MoverOptions options = {});
  // Cancels queued pieces and waits for pieces in flight; unfinished moves end as cancelled.
  // Requires: each Cache that uses it is destroyed.
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Starts copying `from` to `to`, which must not overlap; never blocks for another copy. An empty
  // extent is done at once.
  // Errors: a request that cannot be served (invalid extents, no engine) is a Transfer that is done
  // with this error.
  Transfer copy(Extent to, Extent from, const MoveOptions& options = {});

  // Copies many pairs as one Transfer, which is done when all pairs have ended. `pairs` is used
  // only during the call.
  // - Pairs begin in their order and end in any order. No two pairs may write to the same bytes,
  //   and none may write to bytes that another pair reads.
  // - A failed pair stops no other pair. The outcome is then the error of the first failed pair
  //   with the number of failed pairs. Transfer::poll(index) returns the outcome of each.
  // - Stats are sums, except `queued`, which is the minimum. MoverStats counts each pair as a
  //   transfer.
  // - promote() and cancel() affect all pairs that have not ended.
  Transfer copy(std::span<const MovePair> pairs, const MoveOptions& options = {});

  // Copies many pairs with a Transfer for each. Engines get the pairs together: up to 16 small
  // reads of files are one system call. Requires: pairs.size() == transfers.size().
  void copy(std::span<const MovePair> pairs, std::span<Transfer> transfers,
            const MoveOptions& options = {});

  // Whether this thread is in a callback of any Mover, where waiting for an unfinished move is
  // refused. Callbacks are on_done(), a coroutine resumed there, and a route policy.
  bool in_callback() const;

  // Errors: unsupported: this process is a child, made by fork(), of the process that made the
  // Mover.
  Status check_here() const;

  // Polls backends that need it, and does work that other calls left. Returns the number of
  // completions.
  std::size_t poll();
  // The same, for a thread that only waits for a move into `to`. If nothing has completed, the call
  // also waits, at most `most`:
  // - It sleeps at most 1 ms if the move ends sooner that way (Backend::help).
  // - Otherwise it looks for at most 0.2 ms for work that a GPU should have done by now
  //   (Backend::look).
  std::size_t poll(std::span<const std::byte> to, Nanoseconds most);

  MoverStats stats() const;
  const Machine& machine() const;
  const Clock& clock() const;
  Waiting& waiting() const;

 private:
  friend class CacheShards;
  std::shared_ptr<MoverCore> core_;
  std::atomic<unsigned> caches_{0};  // that use it
};

}  // namespace HEADRACE_API headrace
