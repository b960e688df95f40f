// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/dsa.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::emulator {
namespace {

class EmulatedPortal final : public dsa::Portal {
 public:
  EmulatedPortal(Device& device, std::size_t queue, std::unique_ptr<AddressSpace> memory,
                 PortalOptions options)
      : device_(device), queue_(queue), memory_(std::move(memory)), options_(options) {}
  ~EmulatedPortal() override { device_.forget(*memory_); }

  // As the instruction for its kind of queue: a shared queue takes what it has space for; of a
  // dedicated one, which reports nothing, the rest is dropped.
  Result<std::size_t> submit(std::span<const Descriptor> descriptors) override {
    const bool shared = device_.setup().queues[queue_].shared;
    std::size_t taken = 0;
    for (const Descriptor& descriptor : descriptors) {
      if (options_.character_device && descriptor.opcode() == Opcode::batch) {
        if (taken > 0) break;
        return fail(ErrorCode::invalid, "the queue takes no batches");
      }
      if (!shared) {
        device_.movdir64b(queue_, *memory_, descriptor);
      } else if (!device_.enqcmd(queue_, *memory_, descriptor)) {
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
  Device& device_;
  const std::size_t queue_;
  const std::unique_ptr<AddressSpace> memory_;
  const PortalOptions options_;
};

}  // namespace

Result<std::unique_ptr<dsa::Portal>> open_portal(Device& device, std::size_t queue,
                                                 PortalOptions options) {
  CHECK(queue < device.setup().queues.size());
  if (!device.enabled(queue)) {
    return fail(ErrorCode::absent, "queue {} of {} is disabled; enable it", queue,
                device.setup().name);
  }
  HEADRACE_TRY(auto memory, ProcessMemory::open(getpid()));
  return std::make_unique<EmulatedPortal>(device, queue, std::move(memory), options);
}

dsa::Device facts_of(const DeviceSetup& setup) {
  dsa::Device device{.name = setup.name,
                     .cache_control = true,
                     .operations = QueueSetup{}.operations(),
                     .engines = setup.engines};
  const std::string number = setup.name.substr(std::string_view("dsa").size());
  for (std::size_t i = 0; i < setup.queues.size(); ++i) {
    const QueueSetup& queue = setup.queues[i];
    device.queues.push_back({.name = fmt::format("wq{}.{}", number, i),
                             .file = fmt::format("/dev/dsa/wq{}.{}", number, i),
                             .shared = queue.shared,
                             .size = queue.size,
                             .threshold = queue.threshold,
                             .max_transfer = queue.max_transfer,
                             .max_batch = kMaxBatch,
                             .operations = queue.operations()});
  }
  return device;
}

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

DeviceSet::~DeviceSet() {
  if (!origin_.here()) abandon(std::move(running_));
}

dsa::OpenPortal DeviceSet::opener() {
  return [this](const dsa::WorkQueue& queue) -> Result<std::unique_ptr<dsa::Portal>> {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto& queues = devices_[i].queues;
      const auto found = std::ranges::find(queues, queue.name, &dsa::WorkQueue::name);
      if (found == queues.end()) continue;
      return open_portal(*running_[i], static_cast<std::size_t>(found - queues.begin()), portals_);
    }
    return fail(ErrorCode::absent, "no queue {} is emulated", queue.name);
  };
}

Result<std::unique_ptr<Backend>> open_backend(const Machine& machine, std::vector<EngineId> engines,
                                              const BackendOptions& options) {
  std::vector<DeviceOptions> each(engines.size(), options.device);
  for (std::size_t i = 0; i < each.size(); ++i) each[i].seed += i;
  HEADRACE_TRY(auto started, DeviceSet::start(std::move(each), options.portals));
  const std::shared_ptr<DeviceSet> set = std::move(started);
  std::vector<dsa::Device> devices = set->devices();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (const Engine* engine = machine.find(engines[i])) devices[i].name = engine->name;
  }
  // The backend's way to open queues keeps the devices for as long as the backend uses them.
  return open_dsa(machine, std::move(engines),
                  {.devices = std::move(devices),
                   .open = [set, open = set->opener()](const auto& queue) { return open(queue); },
                   .limit = options.limit});
}

}  // namespace headrace::emulator
