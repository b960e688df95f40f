// SPDX-License-Identifier: Apache-2.0
// One thread's share of a run, a step at a time, so that a test can step it as well as a real
// thread. Thread-compatible.
#pragma once

#include <vector>

#include "backend/dsa/dsa.h"
#include "measure/experiments/dsa/target.h"

namespace headrace::experiment_dsa {

// Memory for a thread's copies, which use it in turn: space for `copies` of them on each side.
struct DsaArea {
  std::uint64_t from = 0;  // address
  std::uint64_t to = 0;
  std::size_t copies = 1;
};

// The number of copies that the thread has in flight, within 256 MiB; at least one.
std::size_t copies_of_area(const DsaThread& thread);

class DsaSubmitter {
 public:
  // Requires: the lane outlives the submitter, and nothing else uses it.
  DsaSubmitter(dsa::OpenQueue& lane, const DsaThread& thread, const DsaArea& area);

  // Records ended copies, and submits once if the window has space. Errors: those of Lane::submit;
  // io: a copy failed.
  Status step();
  bool over() const { return ended_ == thread_.copies; }
  // Submits no more copies. over() is true once all submitted ones have ended.
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
