// SPDX-License-Identifier: Apache-2.0
// The line of layers of demand loads without deadlines: which are read now, and which is next
// (StoreOptions::load_ahead). A layer has a turn from next() until give_back(). Thread-safe.
#pragma once

#include <cstdint>

#include "kvcache/state/jobs.h"
#include "kvcache/state/load_state.h"

namespace headrace::kvcache {

class LoadQueue {
 public:
  // `ahead`: bytes read at a time, unless two layers are more.
  explicit LoadQueue(Bytes ahead) : ahead_(ahead) {}

  // The layers of the load wait in line.
  void push(LoadState& load) noexcept;
  // A group that had its turn needs another one. Returns false if its load was cancelled.
  bool push_again(LoadGroup& group) noexcept;
  // Gives the next group its turn. Returns nullptr if none may have one now.
  LoadGroup* next() noexcept;
  // Returns whether the group had a turn. `unused`: it read nothing.
  bool give_back(LoadGroup& group, bool unused) noexcept;
  // Takes all groups of the load out of the line: those of the first turn from the returned one on,
  // and `again`.
  std::size_t remove(LoadState& load, JobList& again) noexcept;

 private:
  LoadGroup& take_turn(LoadGroup& group) noexcept REQUIRES(mutex_);

  const Bytes ahead_;

  Mutex mutex_;
  JobList in_line_ GUARDED_BY(mutex_);      // loads with layers to start, by arrival
  JobList again_ GUARDED_BY(mutex_);        // groups that need a second turn
  unsigned groups_ GUARDED_BY(mutex_) = 0;  // with a turn
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t first_bytes_ GUARDED_BY(mutex_) = 0;  // the first layers in bytes_
  // How many groups passed the first in line.
  unsigned passed_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::kvcache
