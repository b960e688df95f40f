// Bytes that pass the last-level caches, by the kernel's resctrl file system (MBM: Intel RDT, AMD
// QoS). Documentation/filesystems/resctrl.rst. Single-thread.
#pragma once

#include <filesystem>
#include <memory>

#include "headrace/result.h"
#include "measure/instruments/counters/bus_counter.h"

namespace headrace::instruments {

// Counts the calling thread and those it starts from now on, in a group of our own that goes with
// the counter; one that a killed session left is removed. Where there can be no group (not root, or
// the hardware has no number left to tell groups apart) what all programs of the root group move.
// absent, unsupported, denied: why nothing is counted, and what to do.
Result<std::unique_ptr<BusCounter>> open_resctrl(const std::filesystem::path& mounted,
                                                 const std::filesystem::path& procfs);

}  // namespace headrace::instruments
