// SPDX-License-Identifier: Apache-2.0
// Bytes that pass the last-level caches, by the kernel's resctrl file system (MBM: Intel RDT, AMD
// QoS). Documentation/filesystems/resctrl.rst. Single-thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "headrace/result.h"
#include "measure/instruments/counters/bus_counter.h"

namespace headrace::instruments {

// Makes a directory that is not there; false: it is, or the system refuses. A test does what the
// kernel does in it.
using MakeDirectory = std::function<bool(const std::filesystem::path&)>;
bool make_directory(const std::filesystem::path& path);

// Counts the calling thread and those it starts from now on, in a group of our own that goes with
// the counter, named by the process and a number: one that is there already is somebody else's, and
// neither used nor removed. Those of processes that are over are. Where there can be no group (not
// root, or the hardware has no number left to tell groups apart) what all programs of the root
// group move. absent, unsupported, denied: why nothing is counted, and what to do.
Result<std::unique_ptr<BusCounter>> open_resctrl(const std::filesystem::path& mounted,
                                                 const std::filesystem::path& procfs,
                                                 const MakeDirectory& make = make_directory);

}  // namespace headrace::instruments
