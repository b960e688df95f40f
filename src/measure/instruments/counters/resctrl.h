// SPDX-License-Identifier: Apache-2.0
// Bytes through the last-level caches, by the kernel's resctrl file system (MBM: Intel RDT, AMD
// QoS). Source: Documentation/filesystems/resctrl.rst. Single-thread.
#pragma once

#include <filesystem>
#include <memory>

#include "headrace/result.h"
#include "measure/instruments/counters/bus_counter.h"

namespace headrace::instruments {

// Counts all programs of the root group. Errors: absent, unsupported, denied: why nothing is
// counted, and what to do.
Result<std::unique_ptr<BusCounter>> open_resctrl(const std::filesystem::path& mounted);

}  // namespace headrace::instruments
