// SPDX-License-Identifier: Apache-2.0
// Moves of many pairs: to the scheduler each pair is a move of its own, without a handle; the last
// that is over ends the whole.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "move/core.h"
#include "move/visit.h"

namespace headrace {
namespace {

Error failure_of(const Error& first, std::size_t failed, std::size_t all) noexcept {
  try {
    return {first.code,
            fmt::format("{} of {} pairs failed, the first: {}", failed, all, first.message)};
  } catch (const std::bad_alloc&) {
    return {first.code, {}};
  }
}

}  // namespace

// The move of many pairs with a move for each, none of which has begun.
std::shared_ptr<Move> MoverCore::make_batch(std::span<const MovePair> pairs,
                                            const MoveOptions& options) {
  Bytes total;
  for (const MovePair& pair : pairs) total += pair.to.length;
  const Nanoseconds now = options_.clock->now();
  auto whole =
      std::make_shared<Move>(shared_from_this(), Extent{nullptr, 0, total}, Extent{}, options, now);
  whole->pairs = std::make_unique<std::deque<Move>>();
  for (const MovePair& pair : pairs) {
    Move& made = whole->pairs->emplace_back(shared_from_this(), pair.to, pair.from, options, now);
    made.whole = whole.get();
  }
  // One more than there are, until all have begun.
  whole->pairs_left.store(pairs.size() + 1);
  whole->scheduling.stats.engines.reserve(by_engine_.size());
  whole->scheduling.self = whole;
  return whole;
}

// Moves inside a visit only enter the scheduler, and its end submits them.
void MoverCore::copy(std::span<const MovePair> pairs, std::span<Transfer> transfers,
                     const MoveOptions& options) {
  CHECK(pairs.size() == transfers.size());
  for (std::size_t begin = 0; begin < pairs.size(); begin += kBatch) {
    Visit visit(this, kMostInline);
    for (std::size_t i = begin; i < std::min(begin + kBatch, pairs.size()); ++i) {
      transfers[i] = copy(pairs[i].to, pairs[i].from, options);
    }
    leave_if_due(visit);
  }
}

Transfer MoverCore::copy(std::span<const MovePair> pairs, const MoveOptions& options) {
  if (pairs.empty()) return Transfer(Transfer::Ended{.pairs = 0});
  if (!origin_.here()) {
    Transfer refused = copy(pairs.front().to, pairs.front().from, options);
    refused.ended_.pairs = pairs.size();
    return refused;
  }
  Visit visit(this, kMostInline);
  std::shared_ptr<Move> whole;
  try {
    whole = make_batch(pairs, options);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < pairs.size(); ++i) scheduler_.count_without_work(true);
    return Transfer(Transfer::Ended{.exhausted = true, .pairs = pairs.size()});
  }
  std::size_t begun = 0;
  for (Move& pair : *whole->pairs) {
    begin_pair(pair, options, visit);
    if (++begun % kBatch == 0) leave(visit);
  }
  leave(visit);
  end_pair(*whole, visit);
  return Transfer(std::move(whole));
}

void MoverCore::begin_pair(Move& pair, const MoveOptions& options, Visit& visit) {
  Turn turn(TurnTime(*options_.clock, pair.started));
  turn.tried = true;  // so that many small ones do not hold up the caller: they are queued
  Status opened;
  try {
    opened = open(std::shared_ptr<Move>(pair.whole->scheduling.self, &pair), options, visit, turn);
  } catch (const std::bad_alloc&) {
    opened = out_of_memory();
  }
  if (opened && pair.to.length > 0_B) return;
  {
    MutexLock lock(mutex_);
    scheduler_.count_without_work(!opened);
  }
  Result<MoveStats> outcome;
  if (!opened) outcome = Unexpected(std::move(opened).error());
  pair.finish(std::move(outcome), *options_.waiting);
  end_pair(*pair.whole, visit);
}

// One pair less; the last ends the whole.
void MoverCore::end_pair(Move& whole, Visit& visit) {
  if (whole.pairs_left.fetch_sub(1) > 1) return;
  MoveStats stats = std::move(whole.scheduling.stats);
  const Error* first = nullptr;
  std::size_t failed = 0;
  std::optional<Nanoseconds> queued;
  for (const Move& pair : *whole.pairs) {
    if (!*pair.outcome) {
      if (failed++ == 0) first = &pair.outcome->error();
      continue;
    }
    const MoveStats& one = **pair.outcome;
    stats.bytes += one.bytes;
    stats.pieces += one.pieces;
    stats.retries += one.retries;
    if (one.bytes > 0_B) queued = std::min(queued.value_or(one.queued), one.queued);
    for (const EngineId engine : one.engines) {
      const auto at = std::ranges::lower_bound(stats.engines, engine);
      if (at == stats.engines.end() || *at != engine) stats.engines.insert(at, engine);
    }
  }
  stats.queued = queued.value_or(Nanoseconds{0});
  stats.total = options_.clock->now() - whole.started;
  Result<MoveStats> outcome = std::move(stats);
  if (first != nullptr) {
    outcome = Unexpected(failure_of(*first, failed, whole.pairs->size()));
  }
  const Transfer transfer(std::move(whole.scheduling.self));
  visit.root().call(whole.finish(std::move(outcome), *options_.waiting), transfer);
}

// Does `change` to the move, or to its pairs, of which no more than kMostPieces under one lock.
template <class Change>
void MoverCore::change(Move& move, const Change& change) {
  if (!origin_.here()) return;
  Visit visit(this, 0);
  if (stopped_.load()) return;
  const std::size_t all = move.pairs == nullptr ? 1 : move.pairs->size();
  for (std::size_t done = 0; done < all;) {
    const std::size_t end = std::min(all, done + kMostPieces);
    MutexLock lock(mutex_);
    for (; done < end; ++done) change(move.pairs == nullptr ? move : (*move.pairs)[done]);
  }
  leave(visit);
}

void MoverCore::promote(Move& move, Priority priority) {
  change(move, [&](Move& one) {
    mutex_.assert_held();
    scheduler_.promote(one, priority);
  });
}

void MoverCore::cancel(Move& move) {
  change(move, [&](Move& one) {
    mutex_.assert_held();
    scheduler_.cancel(one);
    cancel_in_flight(one);
  });
}

// Pieces that were taken and not yet submitted have the mark when their engine gets them.
void MoverCore::cancel_in_flight(Move& move) {
  move.stop = true;
  const EngineState* asked = nullptr;
  for (const Segment* piece = move.scheduling.segments.front(); piece != nullptr;
       piece = MoveSegments::next(*piece)) {
    const EngineState& engine = *piece->queue->engine;
    if (std::exchange(asked, &engine) != &engine) engine.backend->cancel(engine.id);
  }
}

}  // namespace headrace
