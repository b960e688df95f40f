// SPDX-License-Identifier: Apache-2.0
// How often the pages of a store are used: pages of like popularity together, so that a store of a
// terabyte is a thousand numbers.
//
// Not drawn but computed: of scrambled keys, whose hash puts ranks on pages like balls into urns,
// what is expected; pages of one group are taken to be alike. Pure functions. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/kv/ycsb/operations.h"

namespace headrace::kv_bench {

struct PageGroup {
  double pages = 0;
  double share = 0;  // of all accesses, by all its pages together
  double age = 0;    // of its youngest record where the latest are read: insertions since
};

// All pages of so many records; shares add up to 1. Requires: records > 1, records_per_page > 0.
std::vector<PageGroup> page_groups(const Workload& workload, std::uint64_t records,
                                   double records_per_page);

}  // namespace headrace::kv_bench
