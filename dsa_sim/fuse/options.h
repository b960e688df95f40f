// SPDX-License-Identifier: Apache-2.0
// What the program is told on its command line, and the devices that follow from it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsa_sim/driver/bus.h"
#include "headrace/result.h"

namespace headrace::emulator {

struct Options {
  std::string help;  // what --help prints; empty: it was not asked for
  std::string mount_point;
  std::string profile = "sapphire-rapids";
  unsigned devices = 1;
  std::vector<unsigned> nodes = {0};  // of each device, in turn
  unsigned engines = 1;               // of each device
  unsigned queue_count = 1;           // of each device; they share its room
  std::vector<QueueSetup> queues;     // of each device, in place of queue_count
  bool block_on_fault = true;
  bool absent_pages_fault = true;
  mode_t mode = 0600;
  ServedOptions served;
};

// Without the program's name. invalid: with what is allowed.
Result<Options> parse_options(std::span<const char* const> arguments);

// invalid: the options ask for what the profile cannot be.
Result<std::vector<DeviceSetup>> make_setups(const Options& options);

}  // namespace headrace::emulator
