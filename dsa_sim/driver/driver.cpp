// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/driver.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <ranges>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::emulator {
namespace {

constexpr unsigned kRetries = 32;  // the driver's IDXD_ENQCMDS_RETRIES
// A bound for a client that submits gigabytes: they are copied on after its write().
constexpr Nanoseconds kAtOnce = std::chrono::seconds{10};

}  // namespace

Result<std::unique_ptr<ServedDevice>> ServedDevice::open(DeviceSetup setup, std::uint64_t seed,
                                                         std::optional<DeviceRates> rates) {
  const bool takes_time = rates.has_value();
  HEADRACE_TRY(auto device,
               Device::open({.setup = std::move(setup), .seed = seed, .rates = std::move(rates)}));
  return std::unique_ptr<ServedDevice>(new ServedDevice(std::move(device), takes_time));
}

// As idxd_cdev_open(). The file of a disabled queue is gone; a program that still reaches it gets
// the kernel's answer for a device number without a driver.
Answer<void> ServedDevice::claim(std::size_t queue) {
  CHECK(queue < setup().queues.size());
  const bool dedicated = !setup().queues[queue].shared;
  const bool halted = device_->halted();
  const MutexLock lock(mutex_);
  Queue& of = queues_[queue];
  if (!of.configured || (dedicated && halted)) {
    return std::unexpected(std::errc::no_such_device_or_address);
  }
  if (dedicated && of.clients > 0) return std::unexpected(std::errc::device_or_resource_busy);
  ++of.clients;
  return {};
}

void ServedDevice::release(std::size_t queue) {
  const MutexLock lock(mutex_);
  --queues_[queue].clients;
}

int ServedDevice::clients(std::size_t queue) const {
  const MutexLock lock(mutex_);
  return queues_[queue].clients;
}

bool ServedDevice::configured(std::size_t queue) const {
  const MutexLock lock(mutex_);
  return queues_[queue].configured;
}

void ServedDevice::disable(std::size_t queue) {
  const MutexLock alone(switching_);
  {
    const MutexLock lock(mutex_);
    queues_[queue].configured = false;
  }
  device_->disable(queue);
}

void ServedDevice::enable(std::size_t queue) {
  const MutexLock alone(switching_);
  device_->enable(queue);
  const MutexLock lock(mutex_);
  queues_[queue].configured = true;
}

bool ServedDevice::set_chance(std::string_view what, double chance) {
  const MutexLock lock(mutex_);
  if (what == "fail") {
    faults_.hardware_chance = chance;
  } else if (what == "fault-pages") {
    faults_.page_fault_chance = chance;
  } else if (what == "lose-records") {
    faults_.lost_record_chance = chance;
  } else if (what == "unknown-statuses") {
    faults_.unknown_status_chance = chance;
  } else {
    return false;
  }
  device_->set_faults(faults_);
  return true;
}

Answer<std::unique_ptr<QueueFile>> QueueFile::open(ServedDevice& device, std::size_t queue,
                                                   std::unique_ptr<AddressSpace> memory) {
  if (const auto claimed = device.claim(queue); !claimed) return std::unexpected(claimed.error());
  return std::unique_ptr<QueueFile>(new QueueFile(device, queue, std::move(memory)));
}

QueueFile::~QueueFile() {
  device_.device().forget(*memory_);
  device_.release(queue_);
}

// idxd_submit_user_descriptor(): the alignment of the record is checked even if there is none.
std::errc QueueFile::submit(Descriptor& descriptor) {
  const QueueSetup& queue = device_.setup().queues[queue_];
  const bool batch = descriptor.opcode() == Opcode::batch;
  if ((batch && !queue.batches_allowed) || descriptor.record % sizeof(Record) != 0) {
    return std::errc::invalid_argument;
  }
  descriptor.owner = 0;
  if (!queue.shared) {
    device_.device().movdir64b(queue_, *memory_, descriptor);
    return {};
  }
  for (unsigned i = 0; i <= kRetries; ++i) {
    if (device_.device().enqcmd(queue_, *memory_, descriptor)) return {};
  }
  return std::errc::resource_unavailable_try_again;
}

Answer<std::size_t> QueueFile::write(std::span<const std::byte> bytes) {
  std::size_t done = 0;
  for (; bytes.size() - done >= sizeof(Descriptor); done += sizeof(Descriptor)) {
    Descriptor descriptor;
    std::memcpy(&descriptor, bytes.data() + done, sizeof(descriptor));
    const std::errc refused = submit(descriptor);
    if (refused == std::errc{}) continue;
    if (done == 0) return std::unexpected(refused);
    break;
  }
  // Programs that probe a queue wait for microseconds, fewer than FUSE and a thread need.
  if (!device_.takes_time()) drain(kAtOnce);
  return done;
}

Result<Devices> open_devices(const std::vector<DeviceSetup>& setups, std::uint64_t seed,
                             std::optional<DeviceRates> rates) {
  Devices devices;
  for (DeviceSetup setup : setups) {
    setup.name = fmt::format("dsa{}", devices.size());
    HEADRACE_TRY(auto device, ServedDevice::open(std::move(setup), seed + devices.size(), rates));
    HEADRACE_TRY_STATUS(device->device().start());
    devices.push_back(std::move(device));
  }
  return devices;
}

std::string queue_name(const ServedDevice& device, std::size_t queue) {
  return fmt::format("wq{}.{}", device.setup().name.substr(3), queue);
}

namespace {

Status switch_queue(const Devices& devices, bool on, std::string_view name) {
  for (const auto& device : devices) {
    for (std::size_t i = 0; i < device->setup().queues.size(); ++i) {
      if (queue_name(*device, i) != name) continue;
      on ? device->enable(i) : device->disable(i);
      return {};
    }
  }
  return fail(ErrorCode::absent, "no queue '{}'; wq0.1 is the second one of dsa0", name);
}

Result<ServedDevice*> find_device(const Devices& devices, std::string_view name) {
  for (const auto& device : devices) {
    if (device->setup().name == name) return device.get();
  }
  return fail(ErrorCode::absent, "no device '{}'; there are dsa0 to dsa{}", name,
              devices.size() - 1);
}

Status set_chance(ServedDevice& device, std::string_view what, std::string_view text) {
  double chance = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chance);
  const bool number = error == std::errc{} && end == text.data() + text.size();
  if (!number || !(chance >= 0 && chance <= 1)) {
    return fail(ErrorCode::invalid, "'{}' is no chance; give 0 to 1", text);
  }
  if (device.set_chance(what, chance)) return {};
  return fail(ErrorCode::invalid,
              "no chance '{}'; there are fail, fault-pages, lose-records, unknown-statuses", what);
}

Status command(const Devices& devices, std::string_view line) {
  std::vector<std::string_view> words;
  for (const auto word : std::views::split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word.begin(), word.end());
  }
  if (words.empty()) return {};
  const std::string_view what = words[0];
  if (words.size() == 2 && (what == "disable" || what == "enable")) {
    return switch_queue(devices, what == "enable", words[1]);
  }
  if (words.size() == 2 && (what == "halt" || what == "recover")) {
    HEADRACE_TRY(ServedDevice* const of, find_device(devices, words[1]));
    what == "halt" ? of->device().halt() : of->device().recover();
    return {};
  }
  if (words.size() == 3) {
    HEADRACE_TRY(ServedDevice* const of, find_device(devices, words[2]));
    return set_chance(*of, what, words[1]);
  }
  return fail(ErrorCode::invalid,
              "'{}' is no command; there are disable and enable with a queue, halt and recover "
              "with a device, and fail, fault-pages, lose-records, unknown-statuses with a chance "
              "and a device",
              line);
}

}  // namespace

Status control(const Devices& devices, std::string_view text) {
  for (const auto line : std::views::split(text, '\n')) {
    HEADRACE_TRY_STATUS(command(devices, std::string_view(line.begin(), line.end())));
  }
  return {};
}

std::string status_text(const Devices& devices) {
  std::string text;
  for (const auto& device : devices) {
    const DeviceStats stats = device->device().stats();
    text += fmt::format(
        "{} {} accepted {} retried {} dropped {} discarded {} executed {} batches {} failed {} "
        "faults {} abandoned {} records-lost {}\n",
        device->setup().name, device->device().halted() ? "halted" : "enabled", stats.accepted,
        stats.retried, stats.dropped, stats.discarded, stats.executed, stats.batches, stats.failed,
        stats.faults, stats.abandoned, stats.records_lost);
    for (std::size_t i = 0; i < device->setup().queues.size(); ++i) {
      text += fmt::format("{} {} clients {} occupancy {}\n", queue_name(*device, i),
                          device->configured(i) ? "enabled" : "disabled", device->clients(i),
                          device->device().occupancy(i));
    }
  }
  return text;
}

}  // namespace headrace::emulator
