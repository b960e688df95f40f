// SPDX-License-Identifier: Apache-2.0
// Diagnosis of Intel DSA for this process: what works, what does not, and how to change that.
//
// A Mover finds and uses the devices by itself, as engines of the machine. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// Where the kernel shows devices. A test and headrace-dsa-sim set other places.
struct DsaPaths {
  std::filesystem::path sysfs;  // of the idxd driver; empty: HEADRACE_DSA_SYSFS, else the default
  std::filesystem::path dev;    // character devices; empty: HEADRACE_DSA_DEV, else the default
  std::filesystem::path pci = "/sys/bus/pci/devices";
};

enum class DsaState : std::uint8_t {
  ready,    // in full use
  limited,  // works, with restrictions
  off,      // present, but this process cannot use it
  absent,   // not on this host
};

std::string_view to_string(DsaState state);

struct DsaFinding {
  std::string name;  // "dsa0"; "" if there is no device to name
  DsaState state = DsaState::absent;
  std::string why;     // one line
  std::string remedy;  // a command or a setting; empty if nothing helps
};

// Returns one finding for each device, or one for the host if the driver shows no device. Opens
// each work queue for a moment. This takes a dedicated queue from no other process: the kernel
// refuses the open while another process has the queue.
std::vector<DsaFinding> examine_dsa(const DsaPaths& paths = {});

}  // namespace HEADRACE_API headrace
