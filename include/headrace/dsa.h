// SPDX-License-Identifier: Apache-2.0
// Intel DSA as this process finds it: what works, what does not, and what would change that.
//
// For diagnosis only: a Mover uses the devices by itself, as engines of the machine. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// Where the kernel shows devices; a test, and headrace-dsa-sim, have it elsewhere.
struct DsaPaths {
  std::filesystem::path sysfs;  // of the idxd driver; empty: HEADRACE_DSA_SYSFS, else the usual
  std::filesystem::path dev;    // of character devices; empty: HEADRACE_DSA_DEV, else the usual
  std::filesystem::path pci = "/sys/bus/pci/devices";
};

enum class DsaState : std::uint8_t {
  ready,    // in full use
  limited,  // works, with less
  off,      // there, but of no use to this process
  absent,   // not on this host
};

std::string_view to_string(DsaState state);

struct DsaFinding {
  std::string name;  // "dsa0"; "" where there is no device to name
  DsaState state = DsaState::absent;
  std::string why;     // one line
  std::string remedy;  // a command or a setting; empty where none helps
};

// One for each device, or one for the host where the driver shows none. Opens each work queue for a
// moment, which takes a dedicated one from nobody: it is refused while another has it.
std::vector<DsaFinding> examine_dsa(const DsaPaths& paths = {});

}  // namespace HEADRACE_API headrace
