// SPDX-License-Identifier: Apache-2.0
// Moves extents: asks a route, submits its pieces to the engines, tries another engine when one
// fails, and tells when it is done.
//
// It does not choose destinations (place), nor remember what was moved (cache). Cores, DMA engines
// and SSD queues copy; the Mover itself uses no core while it waits. It belongs to the process that
// made it: in a child of fork() a copy fails at once as unsupported (docs/design/fork.md).
//
// Who does its work: the engines, and the threads that come by. A call of copy(), poll() or wait()
// submits at most 64 pieces, of whomever, those of engines that copy by themselves first, and
// copies at most 16 that were queued itself, where the engine copies inside submit()
// (Capabilities::inline_below; wait() that often between two looks at its bound). The thread of a
// backend that reports a completion, and the callers of promote() and cancel(), submit as many and
// copy none. What they leave the Mover's own thread does (MoverOptions::poller).
//
// Without memory a move fails as exhausted; one that has begun needs none to end. Only on_done()
// and co_await throw std::bad_alloc, and then have done nothing. The first of them for a move that
// is not done needs no memory, if its callback has none of its own (at most two pointers).
//
// Mover is Thread-safe; Transfer is Thread-compatible (copies of it may be used by many threads).
#pragma once

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

namespace HEADRACE_API headrace {

class MoverCore;
struct Move;

// Who goes first when a pair of nodes is full. A waiting lower class still gets every eighth piece
// (at a device of storage beside demand: as soon as its share of what is in flight is free, see
// MoverOptions::in_flight_per_link), so none starves.
enum class Priority : std::uint8_t { demand, prefetch, migration };

std::string_view to_string(Priority priority);

struct MoveOptions {
  Priority priority = Priority::demand;
  CopyHint hint = CopyHint::automatic;
  // Instead of the Mover's route policy.
  std::optional<RoutePolicy> route = {};
};

// What became of a move.
struct MoveStats {
  Bytes bytes;
  std::uint32_t pieces = 0;
  std::uint32_t retries = 0;      // pieces that failed on an engine and were given to another
  Nanoseconds queued{0};          // from copy() until the first piece was accepted
  Nanoseconds total{0};           // from copy() until the last piece was done
  std::vector<EngineId> engines;  // that moved a piece, ascending
};

// One asynchronous move. A handle: copies share the move. Dropping all handles neither cancels nor
// waits; the memory and objects of both sides must live until the move is done.
class Transfer {
 public:
  Transfer() = default;  // done, with no bytes

  // True once nothing more will be written and the outcome is there.
  bool done() const;
  // True once an engine has a part of it, or it is done.
  bool begun() const;
  // Blocks until done, at most `timeout`. timed_out: not done yet (it goes on; wait again). A move
  // that failed gives the error of the piece that failed last; a cancelled one gives cancelled.
  // invalid: not done, and this thread is in a callback of a Mover, this or another: what the move
  // needs may be the very thing that the callback holds up.
  Result<MoveStats> wait(Nanoseconds timeout = std::chrono::seconds{60}) const;
  // The outcome if done.
  std::optional<Result<MoveStats>> poll() const;
  // MoveStats::total, if it is done and well; else 0.
  Nanoseconds took() const;
  // How many pairs it has, and the outcome of pair `index` once that one is over, which may be long
  // before the whole is: from then on nothing will be written to it. A move of one extent is one
  // pair. Requires: index < size().
  std::size_t size() const;
  std::optional<Status> poll(std::size_t index) const;
  // Lets what is queued of it go to the end of a more urgent class; a less urgent one changes
  // nothing. For a move made ahead that somebody has come to wait for.
  void promote(Priority priority) const;
  // Asks to stop: queued pieces are dropped, engines are asked to end those in flight early
  // (Backend::cancel), and when they have ended the move is done.
  // Does nothing when it is done already.
  void cancel() const;
  // An eventfd that becomes and stays readable when the move is done: for epoll, io_uring, asyncio.
  // Owned by the move: valid while a handle lives; of a move that was done when copy() returned by
  // this handle and the copies made of it from now on. Reading it is harmless and not needed.
  // A thread that sleeps on it in epoll_wait() may be interrupted (EINTR, without a signal) when a
  // small read ends that it has started itself: call it again.
  // exhausted: no descriptor to be had.
  Result<int> event_fd() const;
  // Calls `then` once with the outcome, from the thread that ends the move, or at once in this
  // thread if it is done. That thread may be one of a backend, the Mover's own, or any that calls
  // copy(), poll(), wait() or cancel(), or access() of a Cache: it must not be held up. Several are
  // called in order. One that falls due inside another of the same Mover is called when that one
  // has returned, so that a chain of moves that start each other does not grow the stack; so is one
  // of a move that is done, inside any. It must not destroy the Mover nor wait for a move of any,
  // and must not throw: an exception ends the program.
  void on_done(std::function<void(const Result<MoveStats>&)> then) const;

  // co_await transfer: resumes in the thread that ends the move, as a callback of on_done() does. A
  // suspended coroutine must not be destroyed before.
  bool await_ready() const { return done(); }
  bool await_suspend(std::coroutine_handle<> waiter) const;
  Result<MoveStats> await_resume() const;

 private:
  friend class MoverCore;
  explicit Transfer(std::shared_ptr<Move> move) : move_(std::move(move)) {}
  // The outcome of a move that was done when copy() returned: nothing, one piece, or no memory.
  struct Ended {
    Bytes bytes;
    Nanoseconds total{0};
    EngineId engine{};
    bool moved = false;
    bool exhausted = false;
    std::size_t pairs = 1;
  };
  explicit Transfer(const Ended& ended) : ended_(ended) {}
  std::shared_ptr<Move> move_;  // null: ended_ tells
  Ended ended_;
  mutable std::shared_ptr<const int> descriptor_;  // where move_ is null, once asked for
};

// Longer than the 160 s after which storage gives a piece up, the slowest of the backends.
inline constexpr Nanoseconds kShutdownBound = std::chrono::seconds{200};

struct MoverOptions {
  // Pure, not empty: its answers are remembered per pair of nodes and size.
  RoutePolicy route = place::measured;
  // Parts of a route are cut into pieces of at most this size (and the engine's maximum); not 0.
  // Absent: between memories what the engine prefers (Capabilities::piece), else 1 MiB.
  std::optional<Bytes> piece = {};
  // Bound on what is in flight between one pair of nodes, so that queues stay short and demand
  // overtakes prefetch. At least one piece is always allowed. Beside demand, a device of storage
  // has less than an eighth of it and a piece in flight of what is less urgent.
  // Absent: between memories what the engine prefers (Capabilities::in_flight), else 16 MiB.
  std::optional<Bytes> in_flight_per_link = {};
  const Clock* clock = &system_clock();
  Waiting* waiting = &system_waiting();
  // Whether the Mover polls backends that do not complete by themselves, and does what others
  // leave, from a thread that sleeps when there is neither. Without it whoever waits does, or
  // somebody calls poll().
  bool poller = true;
  // How long the destructor waits for pieces in flight before it gives the process up (CHECK):
  // memory that an engine may still write to must not be freed. Longer than any backend's own bound
  // for a piece (Backend::submit); more than 0.
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
  std::vector<std::string> degraded;  // what its backends have to do without (Backend::degraded)
};

class Mover {
 public:
  // Borrows `machine` and `backends`: both outlive it. With options out of their range each copy
  // fails as invalid and says which.
  Mover(const Machine& machine, const Backends& backends, MoverOptions options = {});
  // Cancels what is queued and waits for what is in flight; transfers end as cancelled.
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Starts copying `from` to `to`; never blocks for another copy. A request that cannot be
  // served (invalid extents, no engine) is a Transfer that is done with that error. An empty extent
  // is done at once. The two must not overlap.
  Transfer copy(Extent to, Extent from, const MoveOptions& options = {});

  // The same for many pairs as one Transfer, which is done when all pairs are over. `pairs` itself
  // is used only during the call. Pairs are begun in their order, and may end in any; no two may
  // write to the same bytes, nor one to what another reads. One that fails stops no other: the
  // outcome is then the error of the first that failed, with how many did, and
  // Transfer::poll(index) tells of each. Stats are sums; `queued` is the least of them. promote()
  // and cancel() concern all pairs that are not over. MoverStats counts each pair as a transfer.
  Transfer copy(std::span<const MovePair> pairs, const MoveOptions& options = {});

  // The same as a Transfer for each pair. Engines are given the pairs together: up to 16 small
  // reads of files are one system call. Requires: pairs.size() == transfers.size().
  void copy(std::span<const MovePair> pairs, std::span<Transfer> transfers,
            const MoveOptions& options = {});

  // Whether this thread is in a callback of a Mover, this or another (on_done, a coroutine that it
  // resumed, a route policy), where waiting for what is not done is refused.
  bool in_callback() const;

  // unsupported: this process is a child, made by fork(), of the one that made it.
  Status check_here() const;

  // Looks for completions of backends that need it, and does what others left. Returns the number
  // of completions.
  std::size_t poll();
  // As poll(), for a thread that has nothing to do but wait for a move into `to`: where nothing has
  // completed it also sleeps, at most `most` and at most 1 ms, if the move ends sooner that way
  // (Backend::help), or looks for at most 0.2 ms for what a GPU should have done by now
  // (Backend::look).
  std::size_t poll(std::span<const std::byte> to, Nanoseconds most);

  MoverStats stats() const;
  const Machine& machine() const;
  const Clock& clock() const;
  Waiting& waiting() const;

 private:
  std::shared_ptr<MoverCore> core_;
};

}  // namespace HEADRACE_API headrace
