// SPDX-License-Identifier: Apache-2.0
// The server as a process: started so that it ends with us, what it has used, and where its pages
// are.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::kv_bench {

// Becomes this program, which the kernel ends when `parent` ends, however that happens. Returns
// only on failure. absent, denied: the program; cancelled: the parent has ended already.
Status become(std::span<const char* const> program, pid_t parent);

struct Usage {
  std::uint64_t major_faults = 0;
  double cpu_ns = 0;  // of all its threads
};
// Nothing: no such process, or it has ended.
std::optional<Usage> usage_of(pid_t process);

struct PagesOut {
  Bytes data;  // private anonymous memory that is written to
  Bytes out;   // of it in swap
};
// Brings all private memory of a process back, then sends this share of its pages, drawn from
// `seed`, to swap. What the kernel does not send is not in `out`. denied: not one's own process or
// not root; unsupported: a kernel without process_madvise; absent: no such process.
Result<PagesOut> page_out(pid_t process, double share, std::uint64_t seed);

// Moves this share of its pages, drawn from `seed`, to a node of memory. `out` is what lies there
// then of what was drawn. denied, absent: as page_out; absent also: no such node.
Result<PagesOut> move_out(pid_t process, double share, int node, std::uint64_t seed);

}  // namespace headrace::kv_bench
