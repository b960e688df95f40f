// SPDX-License-Identifier: Apache-2.0
// A work queue's portal through its character device: mapped if the kernel allows it, else by
// write().
//
// Since May 2024 only programs with CAP_SYS_RAWIO may map a portal (INTEL-SA-01084). Other programs
// hand their descriptors to the kernel, several in one call. The way is chosen by trying.
#pragma once

#include <memory>

#include "backend/dsa/queue/devices.h"
#include "backend/dsa/queue/portal.h"
#include "headrace/result.h"

namespace headrace::dsa {

struct CharacterDeviceOptions {
  bool force_write = false;  // even if mapping is allowed
};

// A portal accepts submissions only from the process that opened it. In a child made by fork() it
// refuses them (denied). Errors: denied: no right to the file; exhausted: another process has the
// dedicated queue; absent: no such queue, or it is disabled; unsupported: neither way works here.
Result<std::unique_ptr<Portal>> open_character_device(const WorkQueue& queue,
                                                      CharacterDeviceOptions options = {});

// Whether the CPU has the instruction for each kind of queue.
struct CpuInstructions {
  bool movdir64b = false;
  bool enqcmd = false;
};
CpuInstructions cpu_instructions();

}  // namespace headrace::dsa
