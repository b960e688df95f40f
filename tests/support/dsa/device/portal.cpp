// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/portal.h"

#include <cstdint>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::emulator {
namespace {

class DevicePortal final : public Portal {
 public:
  DevicePortal(Device& device, std::size_t queue, AddressSpace& space, PortalOptions options)
      : device_(device), queue_(queue), space_(space), options_(options) {}

  Result<std::size_t> submit(std::span<const Descriptor> descriptors) override {
    const bool shared = device_.setup().queues[queue_].shared;
    std::size_t taken = 0;
    for (const Descriptor& descriptor : descriptors) {
      if (refused(descriptor)) {
        if (taken > 0) break;
        return fail(ErrorCode::invalid,
                    "the queue takes no batches, and records only at multiples of {} bytes",
                    sizeof(Record));
      }
      if (!shared) {
        device_.movdir64b(queue_, space_, descriptor);
      } else if (!device_.enqcmd(queue_, space_, descriptor)) {
        break;
      }
      ++taken;
    }
    if (shared && taken == 0 && !descriptors.empty() && !device_.enabled(queue_)) {
      return fail(ErrorCode::absent, "queue {} of {} is disabled; enable it", queue_,
                  device_.setup().name);
    }
    return taken;
  }

  bool takes_batches() const override {
    return !options_.character_device && device_.setup().queues[queue_].batches_allowed;
  }

  std::string_view name() const override { return "emulator"; }

 private:
  // Whether the kernel's write() would answer EINVAL.
  bool refused(const Descriptor& descriptor) const {
    if (!options_.character_device) return false;
    return descriptor.opcode() == Opcode::batch || descriptor.record % sizeof(Record) != 0;
  }

  Device& device_;
  const std::size_t queue_;
  AddressSpace& space_;
  const PortalOptions options_;
};

}  // namespace

std::unique_ptr<Portal> open_portal(Device& device, std::size_t queue, AddressSpace& space,
                                    PortalOptions options) {
  CHECK(queue < device.setup().queues.size());
  return std::make_unique<DevicePortal>(device, queue, space, options);
}

}  // namespace headrace::emulator
