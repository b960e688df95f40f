// SPDX-License-Identifier: Apache-2.0
// Copies by the Data Streaming Accelerators (Intel DSA) of Xeon processors, 4th generation and
// later, through the work queues that the kernel's idxd driver gives to users.
//
// Facade of the folder: the backend and, for the emulator that replaces a device, the formats that
// a device reads, the access to its queues, and their discovery. No vendor library is used, since
// only a few sysfs files of accel-config's work are needed. The reasons: docs/design/dsa.md.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/dsa/queue/character_device.h"  // IWYU pragma: export
#include "backend/dsa/queue/descriptor.h"        // IWYU pragma: export
#include "backend/dsa/queue/devices.h"           // IWYU pragma: export
#include "backend/dsa/queue/open_queue.h"        // IWYU pragma: export
#include "backend/dsa/queue/portal.h"            // IWYU pragma: export
#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/waiting.h"

namespace headrace {

struct DsaOptions {
  // The devices, by the names of the engines; empty: those that sysfs shows.
  std::optional<std::vector<dsa::Device>> devices = {};
  // The way to open queues; empty: through their character devices.
  dsa::OpenPortal open = {};
  // A descriptor without an answer after this time is given up. Its queue is closed, which ends the
  // device's work on it, and opened anew.
  Nanoseconds limit = std::chrono::seconds{5};
  const Clock* clock = &system_clock();
  Waiting* waiting = &system_waiting();  // for descriptors in flight when the backend ends
};

// Drives `engines`, which are dsa engines of `machine`. Each uses all queues of its device that
// this process can open. The CPU, not the device, brings in missing pages. A copy that one queue
// refuses is tried in the device's next queue. If all refuse it, it fails, and another engine can
// copy it. Errors: unsupported: one of them is not a dsa engine; absent, denied, exhausted: no
// queue of any of them can be opened (the reason of the first).
Result<std::unique_ptr<Backend>> open_dsa(const Machine& machine, std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_dsa(const Machine& machine, std::vector<EngineId> engines,
                                          const DsaOptions& options);

}  // namespace headrace
