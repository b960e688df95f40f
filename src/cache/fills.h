// SPDX-License-Identifier: Apache-2.0
// Copies in flight: submitted, waited for, ended. Takes the shard's lock for its part of the work.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "cache/blocks.h"
#include "core/waiting/patience.h"
#include "headrace/histogram.h"

namespace headrace {

inline constexpr std::string_view kInCallback =
    "{} in a callback of the Mover would hold up the very copy it waits for; call it from a thread "
    "of your own";

// How long a waiting thread sleeps before it polls the Mover: doubling from the first to the
// second. If the Mover has a poller (MoverOptions::poller), the end of the copy wakes the thread at
// once; otherwise this thread does the polling.
inline constexpr Nanoseconds kFirstSleep = std::chrono::microseconds{50};
inline constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds{10};

class Pump;

class Fills {
 public:
  Fills(ShardState& state, Pump& pump) : state_(state), pump_(pump) {}

  // Waits until the block is not filling, or for `timeout`; returns its state. `waited` sums the
  // time that one handle waits for its copy, over all calls.
  BlockState wait(CacheEntry& entry, Nanoseconds timeout, Nanoseconds& waited);
  void on_ready(CacheEntry& entry, std::function<void()> then);
  bool in_callback() const { return state_.mover.in_callback(); }
  // A write-back has ended. `why`: the error; null: success.
  void written_back(CacheEntry& entry, const Error* why) noexcept;
  // The same for a move of a chain to `entry`.
  void moved(CacheEntry& entry, const Error* why) noexcept;
  // Waits until no engine reads the object. Errors: as Cache::forget().
  Status await_unread(ObjectId object, Patience& patience);
  // While it lives, the ends of copies wake the thread that waits for all.
  class AwaitAll;

  const Histogram& wait_time() const { return wait_time_; }
  const Histogram& copy_latency() const { return copy_latency_; }

 private:
  friend class Started;
  void follow(CacheEntry& entry, const Transfer& transfer, Priority asked) noexcept;
  bool complete_at_once(CacheEntry& entry, const Transfer& transfer, bool may_call) noexcept;
  bool hear(CacheEntry& entry, const Transfer& transfer);
  void remember(CacheEntry& entry, const Transfer& transfer, Priority asked);
  bool complete(CacheEntry& entry, const Error* why, Nanoseconds took, bool may_call) noexcept;
  template <class Change>
  bool end(const Change& change) noexcept;
  void sleep(CacheEntry& entry, Nanoseconds timeout);
  void lose_if_gone(std::uint16_t node) noexcept;

  ShardState& state_;
  Pump& pump_;
  Histogram wait_time_;
  Histogram copy_latency_;
  // Threads that wait on Signals::running or Signals::ends. A thread that changes them wakes these.
  unsigned watchers_ GUARDED_BY(state_.mutex) = 0;
};

class Fills::AwaitAll {
 public:
  explicit AwaitAll(Fills& fills);
  ~AwaitAll();
  AwaitAll(const AwaitAll&) = delete;
  AwaitAll& operator=(const AwaitAll&) = delete;
  void wait();

 private:
  Fills& fills_;
};

// Blocks of one cache, in one shard or several, whose copies are submitted together, at the latest
// by the destructor. Single-thread.
class Started {
 public:
  static constexpr std::size_t kMost = 16;

  Started() = default;
  ~Started() { submit(); }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  void add(Fills& fills, CacheEntry& entry, Priority asked) {
    if (asked != asked_) submit();
    asked_ = asked;
    blocks_[count_++] = {&fills, &entry};
    if (count_ == blocks_.size()) submit();
  }
  bool empty() const { return count_ == 0; }
  // Call it before waiting for anything: no other thread submits these copies.
  void submit() noexcept {
    if (count_ > 0) submit_all();
  }

 private:
  void submit_all() noexcept;

  Priority asked_ = Priority::demand;  // of all of them
  std::array<std::pair<Fills*, CacheEntry*>, kMost> blocks_;
  std::size_t count_ = 0;
};

}  // namespace headrace
