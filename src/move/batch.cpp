// SPDX-License-Identifier: Apache-2.0
// Moves of many pairs. To the scheduler each pair is a move of its own, without a handle; the last
// pair that ends also ends the whole.
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

// Maximum pairs that one list is asked for.
constexpr std::size_t kMostListed = 4096;

Error failure_of(const Error& first, std::size_t failed, std::size_t all) noexcept {
  try {
    return {first.code,
            fmt::format("{} of {} pairs failed, the first: {}", failed, all, first.message)};
  } catch (const std::bad_alloc&) {
    return {first.code, {}};
  }
}

bool is_memory(const Machine& machine, NodeId id) {
  const Node* const node = machine.find(id);
  return node != nullptr && node->byte_addressable();
}

// The engine that copies lists between these nodes: the GPU's, the only engine between it and
// memory.
const Lister* lister_of(std::span<const Lister> listers, const Machine& machine, NodeId from,
                        NodeId to) {
  for (const Lister& lister : listers) {
    const bool into = to == lister.gpu && is_memory(machine, from);
    const bool out = from == lister.gpu && is_memory(machine, to);
    if (into || out) return &lister;
  }
  return nullptr;
}

}  // namespace

// Makes the move of many pairs with a move for each; none has begun.
std::shared_ptr<Move> MoverCore::make_batch(std::span<const MovePair> pairs,
                                            const MoveOptions& options) {
  Bytes total;
  for (const MovePair& pair : pairs) total += pair.to.length;
  const Nanoseconds now = options_.clock->now();
  auto whole =
      std::make_shared<Move>(shared_from_this(), Extent{nullptr, 0, total}, Extent{}, options, now);
  whole->pairs = std::make_unique<std::deque<Move>>();
  whole->pairs_count = pairs.size();
  for (std::size_t i = 0; i < pairs.size();) {
    Move& made =
        whole->pairs->emplace_back(shared_from_this(), pairs[i].to, pairs[i].from, options, now);
    made.whole = whole.get();
    made.first_pair = i;
    const std::size_t listed = options.route ? 0 : count_listed(pairs.subspan(i));
    if (listed > 1) {
      made.listed.assign(pairs.begin() + static_cast<std::ptrdiff_t>(i),
                         pairs.begin() + static_cast<std::ptrdiff_t>(i + listed));
      made.list = std::make_unique<PieceList>(PieceList{.parts = made.listed});
      made.list->failed.resize(listed);
    }
    i += made.size();
  }
  // All pairs, plus one until all have begun.
  whole->pairs_left.store(whole->pairs->size() + 1);
  whole->scheduling.stats.engines.reserve(by_engine_.size());
  whole->scheduling.self = whole;
  return whole;
}

// How many leading pairs are copied as one piece; below 2: none. Otherwise each pair is a move with
// a piece, which costs the caller 3 us (docs/results/2026-11-27-gpu-link.md). Asks about the first
// two before it checks more: otherwise n pairs that no list takes would cost n^2 checks.
std::size_t MoverCore::count_listed(std::span<const MovePair> pairs) const {
  if (listers_.empty()) return 0;
  const auto node = [](const Extent& extent) { return extent.object->node(); };
  const Lister* lister = nullptr;
  const auto listed = [&](std::size_t first) {
    return lister->backend->list(lister->engine, pairs.first(first), lister->piece);
  };
  Bytes bytes;
  std::size_t count = 0;
  for (; count < std::min(pairs.size(), kMostListed); ++count) {
    const MovePair& pair = pairs[count];
    if (!check_request(pair.to, pair.from) || pair.to.length == 0_B) break;
    if (count == 0) lister = lister_of(listers_, machine_, node(pair.from), node(pair.to));
    if (lister == nullptr || (bytes += pair.to.length) > lister->piece) break;
    if (node(pair.to) != node(pairs[0].to) || node(pair.from) != node(pairs[0].from)) break;
    if (count == 1 && listed(2) < 2) return 0;
  }
  return count < 2 ? 0 : listed(count);
}

// Copies inside a visit only enter the scheduler; the end of the visit submits them.
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
  turn.tried = true;  // so small pairs are queued and do not delay the caller
  Status opened;
  try {
    const std::shared_ptr<Move> move(pair.whole->scheduling.self, &pair);
    opened = pair.list == nullptr ? open(move, options, visit, turn) : open_list(move);
  } catch (const std::bad_alloc&) {
    opened = out_of_memory();
  }
  if (opened && pair.to.length > 0_B) return;
  {
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < pair.size(); ++i) scheduler_.count_without_work(!opened);
  }
  Result<MoveStats> outcome;
  if (!opened) outcome = Unexpected(std::move(opened).error());
  pair.finish(std::move(outcome), *options_.waiting);
  end_pair(*pair.whole, visit);
}

Status MoverCore::open_list(const std::shared_ptr<Move>& move) {
  HEADRACE_TRY_STATUS(check_options(options_));
  const NodeId from = move->from.object->node();
  const NodeId to = move->to.object->node();
  MutexLock lock(mutex_);
  if (stopping_) return fail(ErrorCode::cancelled, "the mover is being destroyed; start no moves");
  const EngineId engine = lister_of(listers_, machine_, from, to)->engine;
  const Route route{{{.length = Bytes{move->bytes()}, .engine = engine}}};
  return scheduler_.open(move, scheduler_.link(from, to), route);
}

// Counts one pair less; the last ends the whole.
void MoverCore::end_pair(Move& whole, Visit& visit) {
  if (whole.pairs_left.fetch_sub(1) > 1) return;
  MoveStats stats = std::move(whole.scheduling.stats);
  const Error* first = nullptr;
  std::size_t failed = 0;
  std::optional<Nanoseconds> queued;
  for (const Move& pair : *whole.pairs) {
    if (!*pair.outcome) {
      if (failed == 0) first = &pair.outcome->error();
      failed += pair.count_failed();
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
    outcome = Unexpected(failure_of(*first, failed, whole.pairs_count));
  }
  const Transfer transfer(std::move(whole.scheduling.self));
  visit.root().call(whole.finish(std::move(outcome), *options_.waiting), transfer);
}

// Applies `change` to the move, or to its pairs, at most kMostPieces under one lock.
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

// Pieces that were taken but not yet submitted already have the mark when their engine gets them.
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
