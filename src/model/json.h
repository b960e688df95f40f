// SPDX-License-Identifier: Apache-2.0
// The solver from JSON to JSON, for Python and for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "model/solver.h"

namespace headrace {

// A machine, read once: reading it takes longer than most solutions. Immutable: thread-safe.
class JsonSolver {
 public:
  // Errors: those of Machine::from_json() and Solver::create().
  static Result<JsonSolver> create(std::string_view machine);

  // Solves flows. `flows`: an array, or an object with the array "flows", of
  //
  //     {"name": "triad", "threads": 12, "initiator": 0, "cpus": "0-11", "engine": "dsa0",
  //      "accesses": [{"node": 8, "kind": "read", "bytes": 1, "latency_ns": 130,
  //                    "request_bytes": 4096, "side_cache_hits": 0.9 or [value, low, high],
  //                    "side_cache_dirty": 0.3}],
  //      "in_flight_bytes": 3072, "in_flight_uncertainty": 0.1, "cap_bytes_per_second": 2e10}
  //
  // in which "cpus", "engine", and all after "bytes" may be missing. The result has, per flow, its
  // rate with interval, latencies, and what limits it; per ceiling its load, bandwidth and queue;
  // and the bases of all constants that took part. The same texts give the same bytes. Errors:
  // those of Solver::solve(), with the location in the document.
  Result<std::string> solve(std::string_view flows) const;

 private:
  JsonSolver(Machine machine, Solver solver)
      : machine_(std::move(machine)), solver_(std::move(solver)) {}

  Machine machine_;
  Solver solver_;
};

}  // namespace headrace
