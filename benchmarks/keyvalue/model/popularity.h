// SPDX-License-Identifier: Apache-2.0
// How often the pages of a store are used, in groups of similar popularity, so that a terabyte is a
// thousand numbers. Pure. Thread-safe.
//
// Computed, not drawn. The hash of scrambled keys puts ranks on pages like balls into urns; this
// computes the expectation. Pages of one group count as equal.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/keyvalue/ycsb/operations.h"

namespace headrace::kv_bench {

struct PageGroup {
  double pages = 0;
  double share = 0;  // of all accesses, all its pages together
  double age = 0;    // for workloads that read the latest: insertions since its youngest record
};

// All pages of `records` records; shares add up to 1. Requires: records > 1, records_per_page > 0.
std::vector<PageGroup> page_groups(const Workload& workload, std::uint64_t records,
                                   double records_per_page);

}  // namespace headrace::kv_bench
