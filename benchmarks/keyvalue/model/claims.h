// SPDX-License-Identifier: Apache-2.0
// Published claims about these configurations, compared with the model. Pure. Thread-safe.
//
// Sources: "talk": P. Zhou, MemCon 2024; "order": the order implied by the talk's words and the
// latencies; "second-hand": notes on the paper behind the talk (Tang et al., EuroSys 2024), not
// checked against its text. Figures are met within 15 %.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "benchmarks/keyvalue/model/model.h"

namespace headrace::kv_bench {

// Requires: rows of one workload, all configurations.
std::vector<Check> check_claims(std::span<const ModelRow> rows);

// Checks that interleaving becomes faster than the first memory alone once that would be used
// beyond 80 %, with a growing number of threads. Requires: two tiers.
Check check_reversal(const Workload& workload, const ModelOptions& options,
                     std::span<const Tier> tiers);

}  // namespace headrace::kv_bench
