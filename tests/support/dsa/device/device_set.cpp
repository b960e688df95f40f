// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/device_set.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "core/fail.h"
#include "tests/support/dsa/memory/process_memory.h"

namespace headrace::emulator {
namespace {

class OwnMemoryPortal final : public Portal {
 public:
  OwnMemoryPortal(Device& device, std::size_t queue, std::unique_ptr<ProcessMemory> memory,
                  PortalOptions options)
      : device_(device),
        memory_(std::move(memory)),
        portal_(open_portal(device, queue, *memory_, options)) {}
  ~OwnMemoryPortal() override { device_.forget(*memory_); }

  Result<std::size_t> submit(std::span<const Descriptor> descriptors) override {
    return portal_->submit(descriptors);
  }
  bool takes_batches() const override { return portal_->takes_batches(); }
  std::string_view name() const override { return portal_->name(); }

 private:
  Device& device_;
  const std::unique_ptr<ProcessMemory> memory_;
  const std::unique_ptr<Portal> portal_;
};

}  // namespace

Result<std::unique_ptr<DeviceSet>> DeviceSet::start(std::vector<DeviceOptions> options,
                                                    PortalOptions portals) {
  std::unique_ptr<DeviceSet> devices(new DeviceSet);
  devices->portals_ = portals;
  for (std::size_t i = 0; i < options.size(); ++i) {
    options[i].setup.name = fmt::format("dsa{}", i);
    devices->devices_.push_back(facts_of(options[i].setup));
    HEADRACE_TRY(auto device, Device::open(std::move(options[i])));
    HEADRACE_TRY_STATUS(device->start());
    devices->running_.push_back(std::move(device));
  }
  return devices;
}

OpenPortal DeviceSet::opener() {
  return [this](const WorkQueue& queue) -> Result<std::unique_ptr<Portal>> {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto& queues = devices_[i].queues;
      const auto found = std::ranges::find(queues, queue.name, &WorkQueue::name);
      if (found == queues.end()) continue;
      const auto index = static_cast<std::size_t>(found - queues.begin());
      if (!running_[i]->enabled(index)) {
        return fail(ErrorCode::absent, "{} is disabled; enable it", queue.name);
      }
      HEADRACE_TRY(auto memory, ProcessMemory::open(getpid()));
      return std::make_unique<OwnMemoryPortal>(*running_[i], index, std::move(memory), portals_);
    }
    return fail(ErrorCode::absent, "no queue {} is emulated", queue.name);
  };
}

dsa::Device facts_of(const DeviceSetup& setup, const std::filesystem::path& dev) {
  dsa::Device device{.name = setup.name,
                     .version = setup.version,
                     .capabilities = setup.gen_cap,
                     .operations = setup.op_cap,
                     .node = setup.numa_node,
                     .shared_memory = true};
  for (const GroupSetup& group : setup.groups) device.engines += group.engines;
  const std::string number = setup.name.substr(std::string_view("dsa").size());
  for (std::size_t i = 0; i < setup.queues.size(); ++i) {
    const QueueSetup& queue = setup.queues[i];
    WorkQueue made{.name = fmt::format("wq{}.{}", number, i),
                   .shared = queue.shared,
                   .size = queue.size,
                   .threshold = queue.threshold,
                   .max_transfer = queue.max_transfer,
                   .max_batch = queue.max_batch,
                   .block_on_fault = queue.block_on_fault,
                   .operations = setup.op_cap & queue.op_config.value_or(setup.op_cap)};
    made.file = dev / made.name;
    if (!queue.batches_allowed) made.operations.set(Opcode::batch, false);
    device.queues.push_back(std::move(made));
  }
  return device;
}

}  // namespace headrace::emulator
