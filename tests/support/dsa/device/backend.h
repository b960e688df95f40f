// SPDX-License-Identifier: Apache-2.0
// The DSA backend on emulated devices, one for each engine: everything but the hardware is what
// runs on a machine that has it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "tests/support/dsa/device/device_set.h"

namespace headrace::emulator {

struct BackendOptions {
  DeviceOptions device;  // of each; with seeds that differ, at the node of its engine
  PortalOptions portals;
  Nanoseconds limit = std::chrono::seconds{5};
  bool batches = true;
};

// As open_dsa and DeviceSet::start.
Result<std::unique_ptr<Backend>> open_backend(const Machine& machine, std::vector<EngineId> engines,
                                              const BackendOptions& options = {});

}  // namespace headrace::emulator
