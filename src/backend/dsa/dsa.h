// SPDX-License-Identifier: Apache-2.0
// Intel DSA: copies by the Data Streaming Accelerators of Xeon processors (4th generation and
// later), through the work queues that the kernel's idxd driver gives to users.
//
// Facade of the folder: the backend; what a device reads, the way into its queues and their
// discovery, for the emulator that stands in for one. No vendor library: what is needed of
// accel-config is a few files of sysfs. Why it is as it is: docs/design/dsa.md. Thread-safe.
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

namespace headrace {

struct DsaOptions {
  // The devices there are, by the names of the engines; nothing: those that sysfs shows.
  std::optional<std::vector<dsa::Device>> devices = {};
  // How queues are opened; nothing: through their character devices.
  dsa::OpenPortal open = {};
  // A descriptor not answered after this long is given up: its queue is closed, which ends what the
  // device does for it, and opened anew.
  Nanoseconds limit = std::chrono::seconds{5};
  const Clock* clock = &system_clock();
  Waiting* waiting = &system_waiting();  // for what is in flight when the backend ends
  bool batches = true;                   // where the queue takes batch descriptors
};

// Drives `engines`, which are dsa engines of `machine`, each by all the queues of its device that
// this process can open. Pages that are missing are brought in by the CPU, not by the device. What
// a device refuses goes to the next queue of it; what all refuse is reported, for another engine to
// copy. unsupported: one of them is not a dsa engine; absent, denied, exhausted: no queue of any of
// them can be opened, with the reason of the first.
Result<std::unique_ptr<Backend>> open_dsa(const Machine& machine, std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_dsa(const Machine& machine, std::vector<EngineId> engines,
                                          const DsaOptions& options);

}  // namespace headrace
