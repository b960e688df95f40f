// One asynchronous move: what a Transfer is a handle of, what the Mover's scheduler knows about it,
// and how its outcome is told. Internal to src/move.
//
// Thread-safe where it says so; its scheduling is guarded by the mutex of the core.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

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
  Segment* next = nullptr;  // in its queue
  Segment* previous = nullptr;
  Segment* next_of_move = nullptr;
  Segment* previous_of_move = nullptr;
};

// In the queue of an engine, and those of one move.
using SegmentList = IntrusiveList<Segment, &Segment::next, &Segment::previous>;
using MoveSegments = IntrusiveList<Segment, &Segment::next_of_move, &Segment::previous_of_move>;

using Then = std::function<void(const Result<MoveStats>&)>;

struct Move {
  Move(std::shared_ptr<MoverCore> mover, Extent destination, Extent source,
       const MoveOptions& options, Nanoseconds now)
      : core(std::move(mover)), to(destination), from(source), hint(options.hint), started(now) {
    scheduling.priority = options.priority;
  }
  ~Move();
  Move(const Move&) = delete;
  Move& operator=(const Move&) = delete;

  // Thread-safe.
  bool done() const { return word.load() == kDone; }
  // Ends it: from here on the outcome is there. Returns whom to tell. Called once.
  std::vector<Then> finish(Result<MoveStats> result, Waiting& waiting) EXCLUDES(mutex);
  // Keeps `then` for finish(), or refuses it (false, `then` untouched) when it is done.
  bool add(Then& then) EXCLUDES(mutex);
  Result<int> event_fd() EXCLUDES(mutex);

  // Immutable after construction.
  const std::shared_ptr<MoverCore> core;
  const Extent to;
  const Extent from;
  const CopyHint hint;
  const Nanoseconds started;

  // Guarded by the mutex of the core, both; moves that are open are linked.
  Move* next_open = nullptr;
  Move* previous_open = nullptr;
  struct {
    std::shared_ptr<Move> self;  // keeps it alive while it is open
    Priority priority = Priority::demand;
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
  // Written before `word` becomes kDone, never after.
  std::optional<Result<MoveStats>> outcome;

  Mutex mutex;
  std::vector<Then> thens GUARDED_BY(mutex);
  int descriptor GUARDED_BY(mutex) = -1;
};

// The descriptor of a move that was done from the start.
Result<int> event_fd_of_done();

}  // namespace headrace
