// SPDX-License-Identifier: Apache-2.0
// Lookups and updates in a B-tree of pages in a file, through several page caches.
//
// An operation goes through a root and an inner page to a leaf. One in ten adds one to a counter of
// the leaf, the others read it. After the run all changes go to the file, and its counters are
// compared with the updates made. All reads and writes bypass the page cache, if the file system
// allows it.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>

#include "benchmarks/cache/options.h"
#include "headrace/result.h"

namespace headrace::cache_bench {

inline constexpr std::string_view kPageUpdate = "page-update";

// The implementations: "headrace" (writable blocks), "mover" (a write through the Mover, then
// invalidate()), "pool" (page_pool.h). Errors: absent: another one; those of the file.
Result<nlohmann::ordered_json> run_page_update(const Options& options);

}  // namespace headrace::cache_bench
