// The DSA backend on software devices, one for each engine: everything but the hardware is what
// runs on a machine that has it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/dsa_device/emulation.h"
#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace::dsa {

struct EmulatedBackendOptions {
  DeviceOptions device;  // of each; with seeds that differ, at the node of its engine
  DevicePortalOptions portals;
  Nanoseconds limit = std::chrono::seconds{5};
  bool batches = true;
};

// As open_dsa and Emulation::start.
Result<std::unique_ptr<Backend>> open_emulated_dsa(const Machine& machine,
                                                   std::vector<EngineId> engines,
                                                   const EmulatedBackendOptions& options = {});

}  // namespace headrace::dsa
