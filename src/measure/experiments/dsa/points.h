// SPDX-License-Identifier: Apache-2.0
// The points of the experiment `dsa`, as data: what C. Fürst measured ("Data Movement in
// Heterogeneous Memories with Intel Data Streaming Accelerator", TU Dresden 2024, chapter 3; below
// "Fürst 2024"), and what that left unmeasured. Pure. Thread-compatible.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "measure/experiments/copy.h"
#include "measure/experiments/dsa/target.h"

namespace headrace::experiment_dsa {

// A row without its value, and the work that measures it.
struct DsaPoint {
  enum class Kind : std::uint8_t {
    devices,  // `threads` through `shape`
    cores,    // `cores` copy, on this host
    stream,   // the first of `threads` while STREAM runs on its node of this host
    nothing,  // nothing can run; row.reason says why
  };
  Kind kind = Kind::devices;
  Row row;
  std::vector<DsaThread> threads = {};
  DsaShape shape = {};
  experiment_copy::CopySetting cores = {};
  bool first_alone = false;  // the value is the rate of the first thread, not of all
  bool of_stream = false;    // the value is the rate of STREAM, not of the copies
};

// The rate in the point's row.
BytesPerSecond rate_of(const DsaPoint& point, const DsaTimes& times);

struct DsaScope {
  const DsaTarget& target;
  const Machine& host;       // whose cores copy
  std::vector<Bytes> sizes;  // of submission and cpu; empty: the usual ones
  bool with_cpu = false;     // whether the part `cpu` is asked for

  const Machine& machine() const { return target.machine(); }
  NodeId home() const { return machine().find(target.engines().front())->home; }
};

// All points, part by part: submission, threads, route, cpu, queue, interference.
std::vector<DsaPoint> dsa_points(const DsaScope& scope);

// The experiment's parameters.
std::span<const session::Parameter> dsa_parameters();

// The pairs (source, destination) of `route` and of the cores of `cpu`. If the machine has these
// nodes with HBM, the pairs of Fürst 2024: node 0 to 8, 11, 12 and 15. Otherwise from the first
// engine's node to every other memory.
std::vector<std::pair<NodeId, NodeId>> dsa_pairs(const DsaScope& scope);

}  // namespace headrace::experiment_dsa
