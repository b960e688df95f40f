// SPDX-License-Identifier: Apache-2.0
// Bytes through the last-level caches, by the kernel's resctrl file system (MBM: Intel RDT, AMD
// QoS). Source: Documentation/filesystems/resctrl.rst. Single-thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "headrace/result.h"
#include "measure/instruments/counters/bus_counter.h"

namespace headrace::instruments {

// Makes a new directory; false: it exists, or the system refuses. A test then simulates the kernel.
using MakeDirectory = std::function<bool(const std::filesystem::path&)>;
bool make_directory(const std::filesystem::path& path);

// Counts the calling thread and threads that it starts from now on, in a group that is removed with
// the counter. The group is named by the process and a number. An existing group of that name
// belongs to another program, and is neither used nor removed; groups of ended processes are
// removed. If no group can be made (not root, or no hardware number is left), counts all programs
// of the root group. Errors: absent, unsupported, denied: why nothing is counted, and what to do.
Result<std::unique_ptr<BusCounter>> open_resctrl(const std::filesystem::path& mounted,
                                                 const std::filesystem::path& procfs,
                                                 const MakeDirectory& make = make_directory);

}  // namespace headrace::instruments
