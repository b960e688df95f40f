// SPDX-License-Identifier: Apache-2.0
#include "cache/fills.h"

#include <algorithm>
#include <new>

#include "cache/core.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "core/waiting/backoff.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// After this the Mover has lost a copy, whose memory must not be freed: an engine may write to it.
constexpr Nanoseconds kEndBound = kShutdownBound;
// The thread that ends a copy wakes the waiting one. The slice is for a Mover that must be polled.
constexpr Nanoseconds kEndSlice = std::chrono::milliseconds{1};

}  // namespace

// The entries and their Fills stay until complete() has run.
void Started::submit_all() noexcept {
  const auto blocks = std::span(blocks_).first(std::exchange(count_, 0));
  ShardState& state = blocks[0].first->state_;  // all have one Mover and one route
  std::array<Transfer, kMost> transfers;
  try {
    const MoveOptions options{
        .priority = asked_, .hint = CopyHint::automatic, .route = state.options.route};
    std::array<MovePair, kMost> pairs;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const CacheEntry& entry = *blocks[i].second;
      pairs[i] = {entry.fill->to, entry.extent()};
    }
    if (blocks.size() == 1) {
      transfers[0] = state.mover.copy(pairs[0].to, pairs[0].from, options);
    } else {
      state.mover.copy(std::span(pairs).first(blocks.size()),
                       std::span(transfers).first(blocks.size()), options);
    }
  } catch (const std::bad_alloc&) {
    const Error why = out_of_memory().error();
    for (const auto& [owner, entry] : blocks) owner->complete(*entry, &why, {}, true);
    return;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].first->follow(*blocks[i].second, transfers[i], asked_);
  }
}

BlockState Fills::wait(CacheEntry& entry, Nanoseconds timeout, Nanoseconds& waited) {
  if (entry.now() != BlockState::filling && waited == Nanoseconds{0}) return entry.now();
  if (state_.signals.take_pump_due() || state_.signals.growth_due ||
      state_.signals.moves_due.load()) {
    pump_.pump(true);
  }
  const Nanoseconds begin = state_.mover.clock().now();
  sleep(entry, timeout);
  waited += std::max(state_.mover.clock().now() - begin, Nanoseconds{1});
  const BlockState state = entry.now();
  if (state != BlockState::filling) {
    wait_time_.record(static_cast<std::uint64_t>(std::exchange(waited, Nanoseconds{0}).count()));
  }
  return state;
}

void Fills::sleep(CacheEntry& entry, Nanoseconds timeout) {
  Patience patience(state_.mover.clock(), state_.mover.waiting(), timeout);
  Backoff naps(kFirstSleep, kLongestSleep);
  while (entry.now() == BlockState::filling) {
    state_.mover.poll(std::span<const std::byte>(entry.data.load(), entry.length), patience.left());
    std::uint32_t seen = entry.word.load();
    if (entry.now() != BlockState::filling || patience.over()) return;
    if ((seen & CacheEntry::kAwaited) == 0) {
      if (!entry.word.compare_exchange_strong(seen, seen | CacheEntry::kAwaited)) continue;
      seen |= CacheEntry::kAwaited;
    }
    patience.sleep(entry.word, seen, naps.next());
  }
}

// Ensures that complete() runs at the end of the copy.
void Fills::follow(CacheEntry& entry, const Transfer& transfer, Priority asked) noexcept {
  // Not inside a callback: chains of accesses that start each other must keep the stack flat.
  if (!state_.mover.in_callback() && complete_at_once(entry, transfer, false)) return;
  if (!transfer.done()) remember(entry, transfer, asked);
  while (!hear(entry, transfer)) {
    // The copy has begun and its end must be seen. The loop is as bounded as the copy.
    state_.mover.poll();
    if (complete_at_once(entry, transfer, true)) return;
    sleep_for(kFirstSleep);
  }
}

// Saves a callback if the copy is done already, as most copies by a CPU are. False: it is not done,
// or complete() did nothing.
bool Fills::complete_at_once(CacheEntry& entry, const Transfer& transfer, bool may_call) noexcept {
  const std::optional<Status> outcome = transfer.poll(0);
  if (!outcome) return false;
  return complete(entry, *outcome ? nullptr : &outcome->error(), transfer.took(), may_call);
}

// Calls complete() at the end of the copy. False: there is no memory for the callback.
bool Fills::hear(CacheEntry& entry, const Transfer& transfer) {
  try {
    transfer.on_done([this, &entry](const Result<MoveStats>& outcome) {
      complete(entry, outcome ? nullptr : &outcome.error(),
               outcome ? outcome->total : Nanoseconds{0}, true);
    });
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Stores the transfer for promote() and cancel(). Does now what they asked for before.
void Fills::remember(CacheEntry& entry, const Transfer& transfer, Priority asked) {
  Priority wanted = asked;
  bool unwanted = false;
  {
    const MutexLock lock(state_.mutex);
    Fill& fill = *entry.fill;
    fill.transfer = transfer;
    wanted = fill.priority;
    unwanted = fill.cancelled;
  }
  if (wanted != asked) transfer.promote(wanted);
  if (unwanted) transfer.cancel();
}

// Runs in the thread that ended the copy, also inside submit(). `why`: the error; null: success.
// `may_call`: callbacks of on_ready() may run here. Returns false, and does nothing, if they may
// not and there are some.
bool Fills::complete(CacheEntry& entry, const Error* why, Nanoseconds took,
                     bool may_call) noexcept {
  // Before waiting threads are woken, so that they find no block on a lost GPU.
  if (why != nullptr && entry.has(CacheEntry::kOnGpu)) lose_if_gone(entry.node);
  return end([&]() NO_THREAD_SAFETY_ANALYSIS {
    if (!may_call && !entry.fill->thens.empty()) return false;
    if (why == nullptr) {
      copy_latency_.record(static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)));
    }
    state_.blocks.end_copy(entry, why, took);
    return true;
  });
}

void Fills::written_back(CacheEntry& entry, const Error* why) noexcept {
  end([&]() NO_THREAD_SAFETY_ANALYSIS {
    state_.blocks.end_clean(entry, why);
    return true;
  });
}

void Fills::moved(CacheEntry& entry, const Error* why) noexcept {
  end([&]() NO_THREAD_SAFETY_ANALYSIS {
    state_.chain.end(entry, why);
    return true;
  });
}

// Calls `change` under the lock, then wakes the threads that wait for an end. False: it did
// nothing.
template <class Change>
bool Fills::end(const Change& change) noexcept {
  Waiting& waiting = state_.mover.waiting();
  std::atomic<std::uint32_t>& running = state_.signals.running;
  const std::atomic<std::uint32_t>& ends = state_.signals.ends;
  bool due = false;
  bool watched = false;
  {
    const Locked lock(state_);
    if (!change()) return false;
    ++state_.signals.ends;
    due = state_.signals.take_pump_due() || state_.signals.moves_due.load() ||
          state_.deferred.needs_cache();
    watched = watchers_ > 0;
    if (!due) --running;
  }
  if (due) {
    pump_.pump(false);
    const MutexLock lock(state_.mutex);
    watched = watchers_ > 0;
    --running;
  }
  // The cache may be destroyed. A destructor that waits also reads the word by itself.
  if (watched) {
    waiting.wake_all(running);
    waiting.wake_all(ends);
  }
  return true;
}

void Fills::on_ready(CacheEntry& entry, std::function<void()> then) {
  if (state_.origin.here()) {
    const MutexLock lock(state_.mutex);
    if (entry.now() == BlockState::filling) {
      entry.fill->thens.push_back(std::move(then));
      return;
    }
  }
  then();
}

// After a GPU is lost: no access finds its blocks, and its budget is 0. New copies go to nodes that
// the placement spills to. A Block that is held keeps an address that no code of the GPU can use.
void Fills::lose_if_gone(std::uint16_t number) noexcept try {
  const NodeId id = state_.options.budgets[number].first;
  const std::optional<Error> why = loss_of(*state_.mover.machine().find(id));
  if (!why) return;
  {
    const MutexLock lock(state_.mutex);
    Space::Node& node = state_.space.node(number);
    if (std::exchange(node.lost, true)) return;
    node.budget = 0;
    node.grow_error = why;
    state_.signals.pump_due = true;
  }
  drop_all(state_, number);
  for (bool more = true; more;) {
    const Locked lock(state_);
    more = state_.space.fit_budget(state_.space.node(number));
  }
} catch (const std::bad_alloc&) {
  // The blocks have left the index; their slabs are released with the cache.
}

Status Fills::await_unread(ObjectId object, Patience& patience) {
  for (;;) {
    const std::uint32_t seen = state_.signals.ends.load();
    {
      const MutexLock lock(state_.mutex);
      if (!state_.blocks.being_read(object)) return {};
      if (state_.mover.in_callback()) return fail(ErrorCode::invalid, kInCallback, "forget()");
      ++watchers_;
    }
    state_.mover.poll();
    patience.sleep(state_.signals.ends, seen, kEndSlice);
    const MutexLock lock(state_.mutex);
    --watchers_;
    if (patience.over() && state_.blocks.being_read(object)) {
      return fail(ErrorCode::timed_out, "an engine still reads the object; forget() it again");
    }
  }
}

Fills::AwaitAll::AwaitAll(Fills& fills) : fills_(fills) {
  const MutexLock lock(fills_.state_.mutex);
  ++fills_.watchers_;
}

// The thread that ended the last copy has released the lock.
Fills::AwaitAll::~AwaitAll() {
  const MutexLock lock(fills_.state_.mutex);
  --fills_.watchers_;
}

void Fills::AwaitAll::wait() {
  Mover& mover = fills_.state_.mover;
  const std::atomic<std::uint32_t>& running = fills_.state_.signals.running;
  // In a callback, the copies that it would wait for may need this thread.
  CHECK(running.load() == 0 || !mover.in_callback());
  Patience patience(mover.clock(), mover.waiting(), kEndBound);
  for (auto left = running.load(); left != 0; left = running.load()) {
    CHECK(!patience.over());
    mover.poll();
    patience.sleep(running, left, kEndSlice);
  }
}

}  // namespace headrace
