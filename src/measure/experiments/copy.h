// SPDX-License-Identifier: Apache-2.0
// Copies by CPU cores, for experiments that compare them with other engines. Thread-compatible.
#pragma once

#include <string>

#include "measure/session/experiment.h"

namespace headrace::experiment_copy {

struct CopySetting {
  std::string engine;  // as CopyLoop::find
  const Node* cpu_node = nullptr;
  const Node* from = nullptr;
  const Node* to = nullptr;
  Bytes bytes;  // per copy of one thread
  CpuSet cpus;
  bool cold = true;
  bool divided = false;  // the threads share each copy in parts
  std::shared_ptr<session::BusMeter> bus = std::make_shared<session::BusMeter>();
};

// The point for this row: the total rate of all threads.
session::Point copy_point(const Machine& machine, const CopySetting& setting, Row row,
                          unsigned rank);

}  // namespace headrace::experiment_copy
