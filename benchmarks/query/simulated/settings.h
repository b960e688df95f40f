// SPDX-License-Identifier: Apache-2.0
// The options of a simulated query, read from JSON and checked. Thread-compatible.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/query/simulated/operator_cost.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/route.h"
#include "headrace/units.h"

namespace headrace::simulated {

enum class Mode : std::uint8_t { prefetch, direct, resident, cache };

// Nodes: of the CPUs; where the columns are; where copies go.
struct Group {
  NodeId cpus;
  NodeId slow;
  NodeId fast;
};

struct Settings {
  std::string query = "q6";
  Mode mode = Mode::prefetch;
  Bytes working_set = 16_GiB;
  unsigned passes = 5;
  std::vector<Group> groups;
  unsigned threads = 0;      // per group; above 0 after read_settings()
  unsigned aggregators = 0;  // as QueryOptions
  Bytes chunk = 1_MiB;
  double lead_seconds = 0.05;
  Bytes window = 64_MiB;
  std::optional<Bytes> budget;  // per group
  EngineKind engine = EngineKind::dsa;
  std::string route = "measured";
  unsigned workers = 4;
  std::optional<OperatorCost> operators;
  bool target_vectors = true;
  std::optional<double> lines_in_flight;
  double jitter = 0.02;
  std::uint64_t seed = 1;
};

// Errors: invalid, with the member and the values that it may have; absent: no such node, no hbm
// node for a group.
Result<Settings> read_settings(const Machine& machine, std::string_view options);

nlohmann::ordered_json to_json(const OperatorCost& cost);

// A policy that uses only engines of one kind. Errors: absent: no such policy.
Result<RoutePolicy> route_over(const Machine& machine, EngineKind kind, const std::string& policy);

// The same by the name of a kind: cpu, dsa or any. Copies from and to storage use any engine.
// Errors: also absent: the machine has no such engine; invalid: no such kind.
Result<RoutePolicy> route_by(const Machine& machine, const std::string& engine,
                             const std::string& policy);

}  // namespace headrace::simulated
