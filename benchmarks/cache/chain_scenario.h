// SPDX-License-Identifier: Apache-2.0
// Lookups of a file's extents by Zipf's law through a chain of two memories, and through each
// alone.
//
// The memories are the host's first node with CPUs and its next memory node. A host with one node
// has it twice: then only the counts of reads tell something of the chain, and its moves cost time
// without a gain.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>

#include "benchmarks/cache/options.h"
#include "headrace/result.h"

namespace headrace::cache_bench {

inline constexpr std::string_view kChain = "chain";

// The implementations: "first" (the budget on the first memory), "further" (three times as much on
// the next), "chain" (both). Errors: absent: another one; those of the file and of the cache.
Result<nlohmann::ordered_json> run_chain(const Options& options);

}  // namespace headrace::cache_bench
