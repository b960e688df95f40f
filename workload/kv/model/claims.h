// SPDX-License-Identifier: Apache-2.0
// What was said of these configurations, beside what the model gives.
//
// "talk": P. Zhou, MemCon 2024; "order": the order that the talk's words and the latencies imply;
// "second-hand": notes on the paper behind the talk (Tang et al., EuroSys 2024), not checked
// against its text. Figures are met within 15 %. Pure functions. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "workload/kv/model/model.h"

namespace headrace::kv_bench {

// Requires: rows of one workload, all configurations.
std::vector<Check> check_claims(std::span<const ModelRow> rows);

// That interleaves come in the other order once the first memory alone would be used beyond 80 %:
// the server is given more and more threads. Requires: two tiers.
Check check_reversal(const Workload& workload, const ModelOptions& options,
                     std::span<const Tier> tiers);

}  // namespace headrace::kv_bench
