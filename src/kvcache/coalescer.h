// SPDX-License-Identifier: Apache-2.0
// Lets several loads of a block read it from the folder once. One load reads; the others take the
// bytes from its memory as soon as they are there, before the reader's end is reported. Missing or
// damaged bytes they read themselves, so neither a failure nor the end of the reader affects them.
// Each load compares the checksums of its own copy.
//
// A group of a load looks for readers when it is about to start. It follows a group that has been
// started and is about as small, and as urgent or becomes so. From then on others may follow it
// (open), until it has its bytes (done); before it looks again, it is done.
//
// No group waits for itself: a followed group has been open for longer than its follower. No group
// waits for a turn that it holds (LoadQueue): neither its reads nor the followed group wait for a
// turn.
//
// Thread-safe.
#pragma once

#include <vector>

#include "kvcache/state/load_state.h"

namespace headrace::kvcache {

class Coalescer {
 public:
  explicit Coalescer(StoreCore& store) : store_(store) {}

  // Called when the group is about to start. Finds the parts that other loads are reading or have;
  // the group reads the rest, and others may follow it.
  void join(LoadGroup& group) noexcept;
  // Takes bytes that were there when the group joined.
  void take_late(LoadGroup& group) noexcept;
  // Gives followers the bytes, or if reading failed, lets them read themselves.
  void share(LoadGroup& group) noexcept;
  // The group will join again, for the layers that were not delivered.
  void reset(LoadGroup& group) noexcept;
  // The load was cancelled: it follows no other load any more.
  void unfollow(LoadState& load) noexcept;
  // Makes the loads that read for the group as urgent as the group.
  void make_readers_urgent(LoadGroup& group) noexcept;

 private:
  // Returns false if the group must read the layer itself.
  bool follow(LoadGroup& group, unsigned item, unsigned layer, std::vector<Follower>& following)
      REQUIRES(kTable, mutex_);
  // Returns false if this reader has nothing to offer.
  bool follow(LoadGroup& group, const LoadItem& reader, Follower& follower) REQUIRES(mutex_);
  bool may_follow(const LoadGroup& group, const LoadGroup& reading) const REQUIRES(mutex_);
  // Returns false if the bytes are no longer there.
  bool take_late(const Follower& follower) noexcept;
  void deliver(Follower& follower, bool delivered) noexcept;

  StoreCore& store_;
  Mutex mutex_;  // guards which loads follow others; fields of LoadGroup and Follower
};

}  // namespace headrace::kvcache
