// SPDX-License-Identifier: Apache-2.0
// One call into the core of a Mover by one thread: the work it may still do, the pieces that ended
// inside it, and the callbacks that it runs. Internal to src/move.
//
// The visits of a thread, for all Movers, form a chain. Nested visits to one Mover leave their work
// to the outermost, their root. Single-thread: a visit belongs to its thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "move/core.h"

namespace headrace {

// Pieces submitted per turn of the loop: enough to amortize the fixed cost of a submission, few
// enough that demand arriving meanwhile waits only briefly.
inline constexpr std::size_t kBatch = 16;
// How many pieces a visit submits, and copies itself, at most (mover.h).
inline constexpr std::size_t kMostPieces = 64;
inline constexpr std::size_t kMostInline = 16;

// The work of one visit between two looks at the scheduler.
struct MoverCore::Turn {
  explicit Turn(TurnTime begin) : time(begin) {}
  TurnTime time;
  std::array<Segment*, kBatch> segments;
  std::size_t taken = 0;
  Move* ended = nullptr;
  Transfer::Ended at_once;  // the result of a copy without the scheduler
  bool tried = false;       // whether such a copy was tried
  bool left = false;
  bool start_poller = false;
  bool call_poller = false;
};

class MoverCore::Visit {
 public:
  // `inline_most`: how many pieces it may copy itself. Without a core the visit only runs
  // callbacks.
  Visit(MoverCore* core, std::size_t inline_most)
      : inline_left(inline_most), core_(core), below_(top) {
    if (core != nullptr) {
      if (Visit* root = root_in(*core)) {
        root_ = root;
      } else {
        entered_.emplace(core->inside_);
      }
    }
    top = this;
  }
  ~Visit() { top = below_; }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  bool outermost() const { return root_ == this; }
  Visit& root() { return *root_; }
  static bool any() { return top != nullptr; }
  // The root of this thread's visits to `core`; null: there is none.
  static Visit* root_in(const MoverCore& core) {
    for (Visit* visit = top; visit != nullptr; visit = visit->below_) {
      if (visit->core_ == &core) return visit->root_;
    }
    return nullptr;
  }
  // The innermost visit that is running a callback.
  static Visit* running() {
    Visit* visit = top;
    while (visit != nullptr && !visit->root_->running_) visit = visit->below_;
    return visit == nullptr ? nullptr : visit->root_;
  }

  // Notes a piece that has ended.
  void reap(Segment& segment) {
    segment.next = nullptr;
    (last_reaped_ == nullptr ? first_reaped_ : last_reaped_->next) = &segment;
    last_reaped_ = &segment;
    ++reaped_;
  }
  std::size_t reaped() const { return reaped_; }
  Segment* take_reaped() {
    reaped_ = 0;
    last_reaped_ = nullptr;
    return std::exchange(first_reaped_, nullptr);
  }

  // Takes the linked listeners and calls them now or, inside another callback, after that one has
  // returned: a chain of moves that end each other must not grow the stack.
  void call(Listener* listeners, const Transfer& done) {
    for (; listeners != nullptr; listeners = listeners->next) {
      listeners->transfer = done;
      (last_ == nullptr ? first_ : last_->next) = listeners;
      last_ = listeners;
    }
    if (!running_) run_all();
  }
  void call_now(Then& then, const Transfer& done) {
    run(then, done);
    run_all();
  }

  // For the root: its remaining share, and whether it must look again.
  std::size_t pieces_left = kMostPieces;
  std::size_t inline_left;
  bool retry_stalled = false;
  bool again = false;

 private:
  // noexcept: an exception would leave the scheduler between two states, so it ends the program.
  void run(Then& then, const Transfer& done) noexcept {
    running_ = true;
    if (done.move_ != nullptr) {
      then(*done.move_->outcome);
    } else {
      then(*done.poll());
    }
    running_ = false;
  }
  void run_all() {
    while (first_ != nullptr) {
      Listener* const one = std::exchange(first_, first_->next);
      if (first_ == nullptr) last_ = nullptr;
      Then then = std::move(one->then);
      // Keeps the move and its fields until the callback has returned.
      const Transfer done = std::exchange(one->transfer, {});
      if (!one->in_move) delete one;
      run(then, done);
    }
  }

  static thread_local Visit* top;
  MoverCore* const core_;
  Visit* const below_;
  Visit* root_ = this;
  std::optional<Inside::Entered> entered_;
  Segment* first_reaped_ = nullptr;
  Segment* last_reaped_ = nullptr;
  std::size_t reaped_ = 0;
  bool running_ = false;
  Listener* first_ = nullptr;
  Listener* last_ = nullptr;
};

}  // namespace headrace
