// SPDX-License-Identifier: Apache-2.0
// One thread's share of a run, a step at a time, so that a test can step it as well as a real
// thread. Thread-compatible.
#pragma once

#include <vector>

#include "backend/dsa/dsa.h"
#include "measure/experiments/dsa/target.h"

namespace headrace::experiment_dsa {

// The memory that its copies use in turn: space for `copies` of them on each side.
struct DsaArea {
  std::uint64_t from = 0;  // address
  std::uint64_t to = 0;
  std::size_t copies = 1;
};

// As many copies as the thread has in flight, but not more than 256 MiB; at least one.
std::size_t copies_of_area(const DsaThread& thread);

class DsaSubmitter {
 public:
  // The lane outlives it, and is used by it alone.
  DsaSubmitter(dsa::OpenQueue& lane, const DsaThread& thread, const DsaArea& area);

  // Takes note of what has ended, and submits once if there is room. As Lane::submit; io: a copy
  // failed.
  Status step();
  bool over() const { return ended_ == thread_.copies; }
  // Nothing more is submitted: over() once all that was has ended.
  void stop() { thread_.copies = started_; }
  // Copies that have ended.
  std::size_t ended() const { return ended_; }

 private:
  dsa::OpenQueue& lane_;
  DsaThread thread_;
  const DsaArea area_;
  std::size_t started_ = 0;
  std::size_t ended_ = 0;
  std::vector<dsa::Submission> orders_;
  std::vector<dsa::Ended> polled_;
};

}  // namespace headrace::experiment_dsa
