// SPDX-License-Identifier: Apache-2.0
// The query workload on a machine that is only described: the production pipeline, cache, plans and
// Mover run in virtual time (sim/sim.h). Only the operators are replaced: they take the time of
// their bytes. Nothing is measured but their cost, once, on this host (operator_cost.h).
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "headrace/result.h"

namespace headrace {

struct SimulationCalls {
  // Called every 50 ms by the calling thread. Returns true to end the run with what it has: the
  // report says that it was interrupted, and lists the scans that were complete.
  std::function<bool()> stop = {};
  // Called every 50 ms by the calling thread, with blocks of columns.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

// Runs a query on a machine, a document of Machine::from_json(), and returns a report in JSON.
// `options` is a JSON object; all members may be missing:
//
// clang-format off
//     {"query": "q6",                       // as query_names()
//      "mode": "prefetch",                  // direct, resident, cache: HBM as a memory-side cache
//      "working_set_bytes": 34359738368,    // of all columns and groups together
//      "passes": 5,                         // scans of the working set, one after another
//      "groups": [{"cpus": 0, "slow": 0, "fast": 8}, ...],  // or how many of the default ones
//      "threads": 12,                       // per group; default: the CPUs of its node, without
//                                           // those that copy
//      "aggregators": 4,                    // threads of a second stage (QueryOptions)
//      "chunk_bytes": 1048576,              // of the widest column
//      "lead_seconds": 0.05, "window_bytes": 67108864,
//      "budget_bytes": 17179869184,         // of the cache, per group; default: the fast node
//      "engine": "dsa",                     // or cpu
//      "route": "measured",                 // or one, brute_force, smart
//      "workers": 4,                        // copying cores per group, for the engine cpu
//      "operators": {...},                  // of measure_operators_json(); default: measured now
//      "vectors": "target",                 // or built: operators use vectors as wide as the
//                                           // machine's
//      "lines_in_flight": 40,               // per core; default: the model's "sequential load"
//      "jitter": 0.02, "seed": 1}           // operators take up to 2 % more or less time
// clang-format on
//
// A group is a NUMA domain that scans its own part of every column, with its own cache: default,
// each node with CPUs, from its own memory to the nearest hbm node.
//
// The same arguments (with "operators") give the same bytes. Errors: invalid, with the member;
// absent: no such node; exhausted: columns that do not fit on their nodes; those of sim::run().
Result<std::string> simulate_query(std::string_view machine, std::string_view options,
                                   const SimulationCalls& calls = {});

// {"columns": [{"column": "l_shipdate", "bytes_per_cycle": 3.1}, ...], "cycles_per_second": ...,
//  "vector_bytes": 16}. Errors: those of measure_operators().
Result<std::string> measure_operators_json(const std::string& query);

}  // namespace headrace
