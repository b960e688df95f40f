// SPDX-License-Identifier: Apache-2.0
// The server as a process: started so that it ends with its parent; its resource use, and the
// places of its pages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::kv_bench {

// Replaces this process by the program, which the kernel ends when `parent` ends in any way.
// Returns only on failure. Errors: absent, denied: the program; cancelled: the parent has ended
// already.
Status become(std::span<const char* const> program, pid_t parent);

struct Usage {
  std::uint64_t major_faults = 0;
  double cpu_ns = 0;  // of all its threads
};
// nullopt: no such process, or it has ended.
std::optional<Usage> usage_of(pid_t process);

struct PagesOut {
  Bytes data;  // private writable anonymous memory
  Bytes out;   // the part in swap
};
// Brings all private memory of a process back, then sends `share` of its pages, chosen by `seed`,
// to swap. `out` counts only pages that the kernel did send. Errors: denied: another user's
// process, without root; unsupported: a kernel without process_madvise; absent: no such process.
Result<PagesOut> page_out(pid_t process, double share, std::uint64_t seed);

}  // namespace headrace::kv_bench
