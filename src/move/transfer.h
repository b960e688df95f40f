// SPDX-License-Identifier: Apache-2.0
// One asynchronous move: the state behind a Transfer, the scheduler's data about it, and the report
// of its outcome. Internal to src/move.
//
// Nothing here allocates once a move is open, so lack of memory cannot stop a move half-way.
// Thread-safe where stated; fields of the scheduler are guarded by the mutex of the core.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "core/intrusive_list.h"
#include "core/mutex.h"
#include "headrace/mover.h"

namespace headrace {

struct Move;
struct LinkQueue;

// A run of bytes of a move: either queued at an engine, or a piece in flight. scheduler.cpp cuts
// pieces from queued segments; an engine may cut a piece further into its own requests.
struct Segment {
  Move* move = nullptr;
  LinkQueue* queue = nullptr;
  std::uint64_t offset = 0;  // within the move
  std::uint64_t length = 0;
  std::uint64_t tried = 0;  // bit i: the piece failed on queue i of its link
  std::uint64_t seen = 0;   // completions of the engine when the piece was taken
  bool in_flight = false;
  bool patient = false;     // taken with less priority than demand
  Segment* next = nullptr;  // in its queue, or in a list of ended pieces
  Segment* previous = nullptr;
  Segment* next_of_move = nullptr;
  Segment* previous_of_move = nullptr;
  std::optional<Error> failure;  // of the piece, from its end until it is settled
};

// Lists of an engine's queue, and of one move.
using SegmentList = IntrusiveList<Segment, &Segment::next, &Segment::previous>;
using MoveSegments = IntrusiveList<Segment, &Segment::next_of_move, &Segment::previous_of_move>;

using Then = std::function<void(const Result<MoveStats>&)>;

// A callback that waits for the end of a move, or for its turn.
struct Listener {
  Then then;
  Transfer transfer = {};  // the transfer that ended; set at its end
  Listener* next = nullptr;
  bool in_move = false;  // Move::first_listener
};

struct Move {
  Move(std::shared_ptr<MoverCore> mover, Extent destination, Extent source,
       const MoveOptions& options, Nanoseconds now)
      : core(std::move(mover)), to(destination), from(source), hint(options.hint), started(now) {
    scheduling.priority = options.priority;
    if (to.valid() && to.memory() != nullptr) target = {to.memory(), to.length.value};
  }
  ~Move();
  Move(const Move&) = delete;
  Move& operator=(const Move&) = delete;

  // Thread-safe.
  bool done() const { return word.load() == kDone; }
  // Ends the move and publishes the outcome. Returns the listeners to call, in order. Called once.
  Listener* finish(Result<MoveStats> result, Waiting& waiting);
  // Makes finish() return a listener with `then`. Returns false, with `then` unchanged, if the move
  // is done. Throws std::bad_alloc, but not for the first callback.
  bool add(Then& then);
  Result<int> event_fd() EXCLUDES(mutex);

  // A move of many pairs has a move for each pair, which the scheduler handles instead of this one.
  // All exist before the first is entered.
  std::unique_ptr<std::deque<Move>> pairs;
  std::size_t pairs_count = 0;
  const Move& pair(std::size_t index) const;  // the element of `pairs` that has this pair
  std::atomic<std::size_t> pairs_left{0};
  Move* whole = nullptr;  // the batch to which this pair or list of pairs belongs
  // Pairs that are copied as one piece: `to` and `from` are the first pair, `first_pair` is its
  // index in the batch. nullptr: a single pair.
  std::unique_ptr<PieceList> list;
  std::vector<MovePair> listed;  // the pairs of the list
  std::size_t first_pair = 0;
  std::uint64_t bytes() const;
  std::size_t size() const { return list == nullptr ? 1 : listed.size(); }
  // Whether pair `index`, counted from the first of this move, has failed. Requires: the move is
  // done.
  bool failed(std::size_t index) const;
  std::size_t count_failed() const;
  // The number of pairs that failed by the marks of the list; all without marks.
  std::size_t marked_failed() const;
  // The bytes of the other pairs.
  Bytes unmarked() const;

  // Immutable after construction.
  const std::shared_ptr<MoverCore> core;
  const Extent to;
  const Extent from;
  const CopyHint hint;
  const Nanoseconds started;
  // The bytes of `to`, if CPUs reach them. `to.object` may be destroyed once the move is done.
  std::span<const std::byte> target;

  // Guarded by the mutex of the core. Links open moves, and ended moves that are not reported yet.
  Move* next_open = nullptr;
  Move* previous_open = nullptr;
  Move* next_ended = nullptr;
  struct {
    std::shared_ptr<Move> self;  // keeps the move alive while it is open
    Priority priority = Priority::demand;
    bool promoted = false;
    MoveSegments segments;
    MoveStats stats;
    std::optional<Nanoseconds> first_taken;
    std::optional<Error> failure;
    bool cancelled = false;
    bool stopping() const { return cancelled || failure.has_value(); }
  } scheduling;

  // `word` is kRunning, kAwaited (running, and a thread sleeps on it) or kDone.
  static constexpr std::uint32_t kRunning = 0;
  static constexpr std::uint32_t kAwaited = 1;
  static constexpr std::uint32_t kDone = 2;
  std::atomic<std::uint32_t> word{kRunning};
  std::atomic<bool> begun{false};  // an engine has a part of the move
  std::atomic<bool> stop{false};   // its pieces must end early (Piece::cancelled)
  // Written before `word` becomes kDone, never after.
  std::optional<Result<MoveStats>> outcome;

  // The last added is first; after finish() a mark that is no listener.
  std::atomic<Listener*> listeners{nullptr};
  // Used once, so that on_done() needs no memory for the first callback.
  Listener first_listener{.in_move = true};
  std::atomic<bool> first_used{false};
  Mutex mutex;  // held while the descriptor is opened
  std::atomic<int> descriptor{-1};
};

// An Error that keeps its code, but not its message, without memory.
Error error_in_words(ErrorCode code, const char* words) noexcept;
// A copy of `outcome`; exhausted if there is no memory for the copy.
Result<MoveStats> copy_of(const Result<MoveStats>& outcome) noexcept;
// The descriptor for a move that was done from the start.
Result<std::shared_ptr<const int>> event_fd_of_done();

}  // namespace headrace
