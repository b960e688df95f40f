// SPDX-License-Identifier: Apache-2.0
// Serves a Tree under a directory by FUSE until a signal ends it. The only part that knows FUSE.
#pragma once

#include <functional>
#include <string>

#include "dsa_sim/driver/tree.h"
#include "headrace/result.h"

namespace headrace::emulator {

// Calls `mounted` when the files are there. Returns after SIGTERM, SIGINT or SIGHUP, or after
// somebody unmounted it, with nothing mounted. `absent_pages_fault`: as ProcessMemory::open, for
// the memory of clients. Errors: absent: no such directory, no /dev/fuse; denied; exhausted:
// something is mounted there already.
Status serve(const Devices& devices, const Tree& tree, const std::string& mount_point,
             bool absent_pages_fault, const std::function<void()>& mounted);

}  // namespace headrace::emulator
