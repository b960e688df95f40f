// SPDX-License-Identifier: Apache-2.0
// Serves a Tree under a directory by FUSE until a signal ends it. The only part that knows FUSE.
#pragma once

#include <functional>
#include <string>

#include "dsa_sim/driver/bus.h"
#include "dsa_sim/driver/tree.h"
#include "headrace/result.h"

namespace headrace::emulator {

struct ServeOptions {
  std::string mount_point;
  // As ProcessMemoryOptions, for the memory of clients.
  bool absent_pages_fault = true;
};

// Calls `mounted` when the files are there; returns after SIGTERM, SIGINT or SIGHUP, or after
// somebody unmounted it, with nothing mounted. absent: no such directory, no /dev/fuse; denied;
// exhausted: something is mounted there already.
Status serve(const Bus& bus, const Tree& tree, const ServeOptions& options,
             const std::function<void()>& mounted);

}  // namespace headrace::emulator
