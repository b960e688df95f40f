// SPDX-License-Identifier: Apache-2.0
// A work queue's portal through its character device: mapped where the kernel allows it, by write()
// where it does not.
//
// Since May 2024 only programs with CAP_SYS_RAWIO may map a portal (INTEL-SA-01084); the others
// hand their descriptors to the kernel, several in one call. Which of the two is decided by trying.
#pragma once

#include <memory>

#include "backend/dsa/queue/devices.h"
#include "backend/dsa/queue/portal.h"
#include "headrace/result.h"

namespace headrace::dsa {

struct CharacterDeviceOptions {
  bool force_write = false;  // also where mapping is allowed
};

// denied: no right to the file; exhausted: a dedicated queue that another has; absent: no such
// queue, or it is disabled; unsupported: neither way works here. The portal refuses (denied) what
// another process than the one that opened it submits, which is what a fork() makes of it.
Result<std::unique_ptr<Portal>> open_character_device(const WorkQueue& queue,
                                                      CharacterDeviceOptions options = {});

// Whether the CPU has the instruction for the kind of queue.
struct CpuInstructions {
  bool movdir64b = false;
  bool enqcmd = false;
};
CpuInstructions cpu_instructions();

}  // namespace headrace::dsa
