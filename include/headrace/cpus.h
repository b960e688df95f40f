// SPDX-License-Identifier: Apache-2.0
// Sets of logical CPUs, and the kernel's text format for them. Thread-compatible.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

// Logical CPUs by the kernel's numbers; sorted, without duplicates.
using CpuSet = std::vector<unsigned>;

// "0-3,8" <-> {0,1,2,3,8}: the kernel's list format.
std::string to_string(const CpuSet& cpus);
Result<CpuSet> parse_cpu_list(std::string_view text);

}  // namespace HEADRACE_API headrace
