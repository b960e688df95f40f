// SPDX-License-Identifier: Apache-2.0
// One asynchronous move: what a Transfer is a handle of, what the Mover's scheduler knows about it,
// and how its outcome is told. Internal to src/move.
//
// Nothing here allocates once a move is open, so a move that has begun cannot be stopped half-way
// by a lack of memory. Thread-safe where it says so; what belongs to the scheduler is guarded by
// the mutex of the core.
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

// A run of bytes of a move: queued at an engine, from which pieces are cut, or one piece in flight.
struct Segment {
  Move* move = nullptr;
  LinkQueue* queue = nullptr;
  std::uint64_t offset = 0;  // within the move
  std::uint64_t length = 0;
  std::uint64_t tried = 0;  // bit i: it failed on queue i of its link
  std::uint64_t seen = 0;   // completions of the engine when it was taken
  bool in_flight = false;
  bool patient = false;     // it was taken as less urgent than demand
  Segment* next = nullptr;  // in its queue, or in a list of pieces that have ended
  Segment* previous = nullptr;
  Segment* next_of_move = nullptr;
  Segment* previous_of_move = nullptr;
  std::optional<Error> failure;  // why the piece failed, from its end until it is settled
};

// In the queue of an engine, and those of one move.
using SegmentList = IntrusiveList<Segment, &Segment::next, &Segment::previous>;
using MoveSegments = IntrusiveList<Segment, &Segment::next_of_move, &Segment::previous_of_move>;

using Then = std::function<void(const Result<MoveStats>&)>;

// A callback that waits for the end of a move, or for its turn.
struct Listener {
  Then then;
  Transfer transfer = {};  // whose outcome it is told; set when that is over
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
  // Ends it: from here on the outcome is there. Returns whom to tell, in order. Called once.
  Listener* finish(Result<MoveStats> result, Waiting& waiting);
  // Has finish() return a listener with `then`, or takes nothing of it (false) when it is done.
  // std::bad_alloc: it is not the first.
  bool add(Then& then);
  Result<int> event_fd() EXCLUDES(mutex);

  // A move of many pairs has a move for each, which the scheduler has instead of this one. They are
  // there before the first is entered.
  std::unique_ptr<std::deque<Move>> pairs;
  std::size_t pairs_count = 0;
  const Move& pair(std::size_t index) const;  // the one of `pairs` that has it
  std::atomic<std::size_t> pairs_left{0};
  Move* whole = nullptr;  // the move that this is a pair of, or a list of pairs
  // Pairs that go as one piece, of which `to` and `from` are the first; and where they are in the
  // whole. nullptr: a pair by itself.
  std::unique_ptr<PieceList> list;
  std::vector<MovePair> listed;  // its parts
  std::size_t first_pair = 0;
  std::uint64_t bytes() const;
  std::size_t size() const { return list == nullptr ? 1 : listed.size(); }
  // Whether pair `index` of it, counted from its first, has failed. Requires: it is done.
  bool failed(std::size_t index) const;
  std::size_t count_failed() const;
  // By the marks of its list; all without one.
  std::size_t marked_failed() const;

  // Immutable after construction.
  const std::shared_ptr<MoverCore> core;
  const Extent to;
  const Extent from;
  const CopyHint hint;
  const Nanoseconds started;
  // The bytes of `to`, if CPUs reach them: its object may be gone once the move is done.
  std::span<const std::byte> target;

  // Guarded by the mutex of the core, all; moves that are open are linked, and those that ended and
  // were not told yet.
  Move* next_open = nullptr;
  Move* previous_open = nullptr;
  Move* next_ended = nullptr;
  struct {
    std::shared_ptr<Move> self;  // keeps it alive while it is open
    Priority priority = Priority::demand;
    bool promoted = false;
    MoveSegments segments;
    MoveStats stats;
    std::optional<Nanoseconds> first_taken;
    std::optional<Error> failure;
    bool cancelled = false;
    bool stopping() const { return cancelled || failure.has_value(); }
  } scheduling;

  // `word` holds kRunning, kAwaited (running, and somebody sleeps on it) or kDone.
  static constexpr std::uint32_t kRunning = 0;
  static constexpr std::uint32_t kAwaited = 1;
  static constexpr std::uint32_t kDone = 2;
  std::atomic<std::uint32_t> word{kRunning};
  std::atomic<bool> begun{false};  // an engine has a part of it
  std::atomic<bool> stop{false};   // its pieces should end early (Piece::cancelled)
  // Written before `word` becomes kDone, never after.
  std::optional<Result<MoveStats>> outcome;

  // The last that came is first; after finish() the one that no listener is.
  std::atomic<Listener*> listeners{nullptr};
  // Used once, so that who starts a move can hear of its end without memory.
  Listener first_listener{.in_move = true};
  std::atomic<bool> first_used{false};
  Mutex mutex;  // held while the descriptor is opened
  std::atomic<int> descriptor{-1};
};

// An Error whose words may be lost for want of memory, not its code.
Error error_in_words(ErrorCode code, const char* words) noexcept;
// The same as `outcome`; exhausted if there is no memory for a copy of it.
Result<MoveStats> copy_of(const Result<MoveStats>& outcome) noexcept;
// A descriptor for a move that was done from the start.
Result<std::shared_ptr<const int>> event_fd_of_done();

}  // namespace headrace
