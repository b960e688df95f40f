// SPDX-License-Identifier: Apache-2.0
// The file "control" next to the kernel's tree: what tests tell the emulator to do, in words.
//
// A line is one command: "disable wq0.0", "enable wq0.0", "halt dsa0", "recover dsa0", or a chance
// per descriptor from now on: "fail 0.01 dsa0", "fault-pages 0.01 dsa0", "lose-records 0.01 dsa0",
// "unknown-statuses 0.01 dsa0".
#pragma once

#include <string>
#include <string_view>

#include "dsa_sim/driver/bus.h"
#include "headrace/result.h"

namespace headrace::emulator {

// Does the commands of `text` up to the first that cannot be done: invalid, absent.
Status control(const Bus& bus, std::string_view text);

// What reading it gives: a line per device with what happened so far, a line per queue.
std::string status_text(const Bus& bus);

}  // namespace headrace::emulator
