// SPDX-License-Identifier: Apache-2.0
#include "headrace/mover.h"

#include <new>

#include "core/check.h"
#include "core/fail.h"
#include "move/core.h"

namespace headrace {

std::string_view to_string(Priority priority) {
  switch (priority) {
    case Priority::demand: return "demand";
    case Priority::prefetch: return "prefetch";
    case Priority::migration: return "migration";
  }
  return "?";
}

Status check_options(const MoverOptions& options) {
  if (options.piece && *options.piece == 0_B) {
    return fail(ErrorCode::invalid, "`piece` is 0 and moves nothing; give more");
  }
  if (options.shutdown_bound <= Nanoseconds{0}) {
    return fail(ErrorCode::invalid, "`shutdown_bound` is {}, too short for any piece; leave {}",
                to_string(options.shutdown_bound), to_string(kShutdownBound));
  }
  return {};
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

bool Transfer::done() const { return move_ == nullptr || move_->done(); }

Result<MoveStats> Transfer::wait(Nanoseconds timeout) const {
  return move_ == nullptr ? *poll() : move_->core->wait(*move_, timeout);
}

std::optional<Result<MoveStats>> Transfer::poll() const {
  if (move_ != nullptr) {
    if (!move_->done()) return std::nullopt;
    return copy_of(*move_->outcome);
  }
  try {
    if (!ended_.exhausted) {
      MoveStats stats{.bytes = ended_.bytes, .pieces = ended_.moved, .total = ended_.total};
      if (ended_.moved) stats.engines.push_back(ended_.engine);
      return stats;
    }
  } catch (const std::bad_alloc&) {
    // There is none for the list of engines either.
  }
  return out_of_memory();
}

std::size_t Transfer::size() const {
  return move_ != nullptr && move_->pairs != nullptr ? move_->pairs_count : ended_.pairs;
}

Nanoseconds Transfer::took() const {
  if (move_ == nullptr) return ended_.total;
  return move_->done() && *move_->outcome ? (*move_->outcome)->total : Nanoseconds{0};
}

std::optional<Status> Transfer::poll(std::size_t index) const {
  CHECK(index < size());
  if (move_ == nullptr) return ended_.exhausted ? Status(out_of_memory()) : Status{};
  const Move& pair = move_->pairs == nullptr ? *move_ : move_->pair(index);
  if (!pair.done()) return std::nullopt;
  if (!pair.failed(index - pair.first_pair)) return Status{};
  return Unexpected(copy_of(*pair.outcome).error());
}

void Transfer::promote(Priority priority) const {
  if (move_ != nullptr) move_->core->promote(*move_, priority);
}

bool Transfer::begun() const { return done() || move_->begun.load(); }

void Transfer::cancel() const {
  if (move_ != nullptr) move_->core->cancel(*move_);
}

Result<int> Transfer::event_fd() const {
  if (move_ == nullptr) {
    if (descriptor_ == nullptr) {
      HEADRACE_TRY(descriptor_, event_fd_of_done());
    }
    return *descriptor_;
  }
  HEADRACE_TRY_STATUS(move_->core->origin().check("the move"));
  return move_->event_fd();
}

void Transfer::on_done(std::function<void(const Result<MoveStats>&)> then) const {
  if (move_ != nullptr && !move_->core->origin().here()) return then(wait(Nanoseconds{0}));
  if (done() || !move_->add(then)) MoverCore::call(*this, std::move(then));
}

bool Transfer::await_suspend(std::coroutine_handle<> waiter) const {
  if (move_ == nullptr || !move_->core->origin().here()) return false;
  // Once it is added, this coroutine may be resumed and gone.
  Then resume = [waiter](const auto&) { waiter.resume(); };
  return move_->add(resume);
}

Result<MoveStats> Transfer::await_resume() const { return wait(Nanoseconds{0}); }

Mover::Mover(const Machine& machine, const Backends& backends, MoverOptions options)
    : core_(std::make_shared<MoverCore>(machine, backends, std::move(options))) {}

Mover::~Mover() {
  if (core_->origin().here()) {
    if (caches_ > 0) {
      check_failed(__FILE__, __LINE__, "a Mover is destroyed before its Cache; destroy that first");
    }
    core_->stop();
  } else {
    abandon(std::move(core_));
  }
}

Transfer Mover::copy(Extent to, Extent from, const MoveOptions& options) {
  return core_->copy(to, from, options);
}

Transfer Mover::copy(std::span<const MovePair> pairs, const MoveOptions& options) {
  return core_->copy(pairs, options);
}

void Mover::copy(std::span<const MovePair> pairs, std::span<Transfer> transfers,
                 const MoveOptions& options) {
  core_->copy(pairs, transfers, options);
}

std::size_t Mover::poll() { return core_->poll({}, {}); }

std::size_t Mover::poll(std::span<const std::byte> to, Nanoseconds most) {
  return core_->poll(to, most);
}

Status Mover::check_here() const { return core_->origin().check("the mover"); }

bool Mover::in_callback() const { return MoverCore::in_callback(); }

MoverStats Mover::stats() const { return core_->stats(); }

const Machine& Mover::machine() const { return core_->machine(); }

const Clock& Mover::clock() const { return *core_->options().clock; }

Waiting& Mover::waiting() const { return *core_->options().waiting; }

}  // namespace headrace
