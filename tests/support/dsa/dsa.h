// SPDX-License-Identifier: Apache-2.0
// The DSA emulator: devices made of software, which execute descriptors as the specification says.
// The code that drives a device is tested on them on machines that have none.
//
// Not fast, and only with DeviceRates a model of time. Where the specification leaves something
// open, the emulator takes the worse choice: undefined fields hold garbage, order is random.
// Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "core/fork.h"
#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "tests/support/dsa/device.h"  // IWYU pragma: export

namespace headrace::emulator {

struct PortalOptions {
  // As if by write() on the character device of a kernel since May 2024: no batches
  // (INTEL-SA-01084; idxd cdev.c).
  bool character_device = false;
};

// Opens a queue of an emulated device, on this process's own memory. A portal that is closed ends
// what is in flight for it. The device outlives the portal. Errors: absent: the queue is disabled;
// denied: a process may not reach its own memory by its number.
Result<std::unique_ptr<dsa::Portal>> open_portal(Device& device, std::size_t queue,
                                                 PortalOptions options = {});

// The device as find_devices() would show it.
dsa::Device facts_of(const DeviceSetup& setup);

// Emulated devices in the place of those of a host, with their own threads. The set outlives the
// portals.
class DeviceSet {
 public:
  // Errors: invalid: a set-up is impossible; exhausted: no threads.
  static Result<std::unique_ptr<DeviceSet>> start(std::vector<DeviceOptions> options,
                                                  PortalOptions portals = {});
  ~DeviceSet();

  const std::vector<dsa::Device>& devices() const { return devices_; }
  dsa::OpenPortal opener();
  Device& device(std::size_t index) { return *running_[index]; }

 private:
  DeviceSet() = default;

  const Origin origin_;
  PortalOptions portals_;
  std::vector<std::unique_ptr<Device>> running_;
  std::vector<dsa::Device> devices_;
};

struct BackendOptions {
  DeviceOptions device;  // of each; with different seeds
  PortalOptions portals;
  Nanoseconds limit = std::chrono::seconds{5};
};

// The DSA backend on emulated devices, one for each engine. Errors: as open_dsa and
// DeviceSet::start.
Result<std::unique_ptr<Backend>> open_backend(const Machine& machine, std::vector<EngineId> engines,
                                              const BackendOptions& options = {});

}  // namespace headrace::emulator
