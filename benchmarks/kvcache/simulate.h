// SPDX-License-Identifier: Apache-2.0
// Prompts whose beginnings were seen before, on a machine that is only described: the production KV
// store and Mover run in virtual time (sim/sim.h). A GPU computes layer after layer, in a given
// time for each token. No bytes are moved and no tokens computed.
//
// Left out: the time of the store's own code, its checksums, and submissions to engines.
//
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "benchmarks/query/simulated/simulate.h"
#include "headrace/result.h"

namespace headrace {

// Serves requests one after another on a machine, a document of Machine::from_json(), and returns a
// report in JSON. `options` is a JSON object; members with a default may be missing:
//
// clang-format off
//     {"layers": 32, "layer_token_bytes": 4096,  // keys and values
//      "block_tokens": 64,
//      "gpu": 2000,                              // the node that blocks are loaded to
//      "memory": 0,                              // the node of the memory tier
//      "pool_bytes": 0, "memory_bytes": 0, "ssd_bytes": 0,  // tiers, fast to slow; 0: none
//      "layer_order": true,                      // false: loads all layers, then computes
//      "layer_token_seconds": 1e-6,              // computing of a layer for a new token
//      "requests": [{"seconds": 0, "tokens": 130, "blocks": [1, 2]}, ...],
//      "untimed": 1}                             // as many first requests are not in the report
// clang-format on
//
// A request comes at its time, has `tokens` tokens, of which the blocks cover the first; equal
// numbers are equal contents. It loads the leading blocks that the store has, computes the others
// (at least one token), and stores them, as the next request begins. After untimed requests all
// stores end first. Computing of all requests takes at most 1e6 s. A request that a stop interrupts
// is not in the report.
//
// The same arguments give the same bytes. A stop or progress function is that of a simulated query;
// progress counts requests. Errors: invalid, with the member; absent: no such node, no SSD;
// exhausted: tiers or prompts that do not fit on their nodes; io: no folder for the SSD's tier can
// be made in the system's temporary folder (sparse, removed at once); those of sim::run() and of
// loads.
Result<std::string> simulate_kvcache(std::string_view machine, std::string_view options,
                                     const SimulationCalls& calls = {});

}  // namespace headrace
