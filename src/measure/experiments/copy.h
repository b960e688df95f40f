// SPDX-License-Identifier: Apache-2.0
// Copying by cores, for experiments that hold it against something else. Thread-compatible.
#pragma once

#include <string>

#include "measure/session/experiment.h"

namespace headrace::experiment_copy {

struct CopySetting {
  std::string engine;  // as CopyLoop::find
  const Node* cpu_node = nullptr;
  const Node* from = nullptr;
  const Node* to = nullptr;
  Bytes bytes;  // of one copy by one thread
  CpuSet cpus;
  bool cold = true;
  bool divided = false;  // all threads copy parts of one copy
  std::shared_ptr<session::BusMeter> bus = std::make_shared<session::BusMeter>();
};

// The point for this row: the rate of all threads together.
session::Point copy_point(const Machine& machine, const CopySetting& setting, Row row,
                          unsigned rank);

}  // namespace headrace::experiment_copy
