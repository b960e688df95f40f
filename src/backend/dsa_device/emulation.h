// Software devices in the place of those of a host: what reads sysfs and opens character devices is
// given these instead, and executes on this process's own memory.
//
// For tests, and for experiments on machines without a device. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "backend/dsa/dsa.h"
#include "backend/dsa_device/device.h"
#include "backend/dsa_device/device_portal.h"
#include "headrace/result.h"

namespace headrace::dsa {

class Emulation {
 public:
  // Opens them, with threads of their own. invalid: a set-up is impossible; exhausted: no threads;
  // denied: the system does not let a process reach its own memory by its number.
  static Result<std::unique_ptr<Emulation>> start(std::vector<DeviceOptions> options,
                                                  DevicePortalOptions portals = {});

  // As find_devices() would show them.
  const std::vector<Device>& devices() const { return devices_; }
  // Opens their queues; each portal ends what is under way for it when it is closed. The emulation
  // outlives them.
  OpenPortal opener();
  SoftwareDevice& device(std::size_t index) { return *running_[index]; }

 private:
  Emulation() = default;

  DevicePortalOptions portals_;
  std::vector<std::unique_ptr<SoftwareDevice>> running_;
  std::vector<Device> devices_;
};

// What sysfs would say about it; its character devices are below `dev`.
Device facts_of(const DeviceSetup& setup, const std::filesystem::path& dev = "/dev/dsa");

}  // namespace headrace::dsa
