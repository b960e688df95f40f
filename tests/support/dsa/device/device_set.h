// SPDX-License-Identifier: Apache-2.0
// Emulated devices in the place of those of a host: what reads sysfs and opens character devices is
// given these instead, and executes on this process's own memory.
//
// For tests, and for experiments on machines without a device. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "headrace/result.h"
#include "tests/support/dsa/device/device.h"
#include "tests/support/dsa/device/portal.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

class DeviceSet {
 public:
  // Opens them, with threads of their own. invalid: a set-up is impossible; exhausted: no threads;
  // denied: the system does not let a process reach its own memory by its number.
  static Result<std::unique_ptr<DeviceSet>> start(std::vector<DeviceOptions> options,
                                                  PortalOptions portals = {});

  // As find_devices() would show them.
  const std::vector<dsa::Device>& devices() const { return devices_; }
  // Opens their queues; each portal ends what is in flight for it when it is closed. The set
  // outlives them.
  OpenPortal opener();
  Device& device(std::size_t index) { return *running_[index]; }

 private:
  DeviceSet() = default;

  PortalOptions portals_;
  std::vector<std::unique_ptr<Device>> running_;
  std::vector<dsa::Device> devices_;
};

// The device as sysfs would describe it; its character devices are below `dev`.
dsa::Device facts_of(const DeviceSetup& setup, const std::filesystem::path& dev = "/dev/dsa");

}  // namespace headrace::emulator
