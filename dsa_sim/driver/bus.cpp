// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/bus.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::emulator {
namespace {

// What the device notes of a descriptor for a full dedicated queue.
constexpr std::uint8_t kDroppedDescriptor = 0x53;

}  // namespace

ServedDevice::ServedDevice(unsigned number, std::unique_ptr<Chances> chances,
                           std::unique_ptr<Device> device, const ServedOptions& options)
    : number_(number),
      takes_time_(options.rates.has_value()),
      chances_(std::move(chances)),
      device_(std::move(device)),
      queues_(device_->setup().queues.size(),
              Queue{.retries = std::min(options.retries, kMostRetries)}) {}

Result<std::unique_ptr<ServedDevice>> ServedDevice::open(unsigned number, DeviceSetup setup,
                                                         ServedOptions options) {
  auto chances = std::make_unique<Chances>(options.seed);
  DeviceOptions of_device{.seed = options.seed, .rates = options.rates};
  setup.name = fmt::format("dsa{}", number);
  of_device.setup = std::move(setup);
  of_device.faults.script = [chances = chances.get()](const Descriptor& descriptor,
                                                      std::uint64_t n) {
    return chances->draw(descriptor, n);
  };
  HEADRACE_TRY(auto device, Device::open(std::move(of_device)));
  return std::unique_ptr<ServedDevice>(
      new ServedDevice(number, std::move(chances), std::move(device), options));
}

// As idxd_cdev_open() does. Of a disabled queue the file is gone; who still reaches it, through a
// file of /dev that it had open, gets what the kernel says of a device number without a driver.
Answer<std::uint64_t> ServedDevice::claim(std::size_t queue) {
  CHECK(queue < setup().queues.size());
  const bool dedicated = !setup().queues[queue].shared;
  const bool halted = device_->halted();
  MutexLock lock(mutex_);
  Queue& of = queues_[queue];
  if (!of.configured) return refuse(std::errc::no_such_device_or_address);
  if (dedicated && of.clients > 0) return refuse(std::errc::device_or_resource_busy);
  if (dedicated && halted) return refuse(std::errc::no_such_device_or_address);
  ++of.clients;
  return of.generation;
}

void ServedDevice::release(std::size_t queue, std::uint64_t generation) {
  MutexLock lock(mutex_);
  if (queues_[queue].generation == generation) --queues_[queue].clients;
}

bool ServedDevice::is_current(std::size_t queue, std::uint64_t generation) const {
  MutexLock lock(mutex_);
  return setup().queues[queue].shared || queues_[queue].generation == generation;
}

int ServedDevice::clients(std::size_t queue) const {
  MutexLock lock(mutex_);
  return queues_[queue].clients;
}

bool ServedDevice::configured(std::size_t queue) const {
  MutexLock lock(mutex_);
  return queues_[queue].configured;
}

void ServedDevice::disable(std::size_t queue) {
  const MutexLock alone(switching_);
  {
    MutexLock lock(mutex_);
    Queue& of = queues_[queue];
    of.configured = false;
    of.clients = 0;
    ++of.generation;
  }
  device_->disable(queue);
}

void ServedDevice::enable(std::size_t queue) {
  const MutexLock alone(switching_);
  device_->enable(queue);
  MutexLock lock(mutex_);
  queues_[queue].configured = true;
}

std::uint8_t ServedDevice::error() const {
  const DeviceStats stats = device_->stats();
  if (stats.dropped > 0) return kDroppedDescriptor;
  return stats.records_lost > 0 ? static_cast<std::uint8_t>(Code::record_fault) : 0;
}

unsigned ServedDevice::retries(std::size_t queue) const {
  MutexLock lock(mutex_);
  return queues_[queue].retries;
}

void ServedDevice::set_retries(std::size_t queue, unsigned retries) {
  MutexLock lock(mutex_);
  queues_[queue].retries = std::min(retries, kMostRetries);
}

Result<Bus> Bus::open(const std::vector<DeviceSetup>& setups, ServedOptions options) {
  Bus bus;
  for (const DeviceSetup& setup : setups) {
    const auto number = static_cast<unsigned>(bus.devices_.size());
    ServedOptions own = options;
    own.seed += number;
    HEADRACE_TRY(auto device, ServedDevice::open(number, setup, own));
    bus.devices_.push_back(std::move(device));
  }
  return bus;
}

Status Bus::start() {
  for (const auto& device : devices_) HEADRACE_TRY_STATUS(device->device().start());
  return {};
}

Result<ServedDevice*> Bus::find_device(std::string_view name) const {
  for (const auto& device : devices_) {
    if (device->setup().name == name) return device.get();
  }
  return fail(ErrorCode::absent, "no device '{}'; there are dsa0 to dsa{}", name,
              devices_.size() - 1);
}

Result<Bus::QueueName> Bus::find_queue(std::string_view name) const {
  for (const auto& device : devices_) {
    for (std::size_t i = 0; i < device->setup().queues.size(); ++i) {
      if (fmt::format("wq{}.{}", device->number(), i) == name) return QueueName{device.get(), i};
    }
  }
  return fail(ErrorCode::absent, "no queue '{}'; wq0.1 is the second one of dsa0", name);
}

}  // namespace headrace::emulator
