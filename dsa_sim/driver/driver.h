// SPDX-License-Identifier: Apache-2.0
// Emulated devices with the state that the kernel's driver (idxd) keeps of them: clients of each
// queue, enabled queues; and their queue files (drivers/dma/idxd/cdev.c as of Linux 6.16).
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/mutex.h"
#include "headrace/result.h"
#include "tests/support/dsa/dsa.h"

namespace headrace::emulator {

// The value that a system call on a served file returns, or its errno.
template <class T>
using Answer = std::expected<T, std::errc>;

class ServedDevice {
 public:
  // Errors: invalid: the set-up is impossible.
  static Result<std::unique_ptr<ServedDevice>> open(DeviceSetup setup, std::uint64_t seed,
                                                    std::optional<DeviceRates> rates);

  const DeviceSetup& setup() const { return device_->setup(); }
  Device& device() const { return *device_; }
  // Whether descriptors take a modelled time.
  bool takes_time() const { return takes_time_; }

  // Opens the queue for one more client. EBUSY: a dedicated queue that is open already; ENXIO: a
  // disabled queue, or a dedicated one of a halted device.
  Answer<void> claim(std::size_t queue);
  void release(std::size_t queue);
  int clients(std::size_t queue) const;

  // Whether the queue is enabled; its device may be halted nevertheless.
  bool configured(std::size_t queue) const;
  // Disables a queue like accel-config disable-wq, which waits for accepted work, and enables it
  // again. One call at a time: a queue that is enabled during the wait would accept more.
  void disable(std::size_t queue);
  void enable(std::size_t queue);

  // "fail", "fault-pages", "lose-records" or "unknown-statuses". False: no such chance.
  bool set_chance(std::string_view what, double chance);

 private:
  struct Queue {
    bool configured = true;
    int clients = 0;
  };

  ServedDevice(std::unique_ptr<Device> device, bool takes_time)
      : takes_time_(takes_time),
        device_(std::move(device)),
        queues_(device_->setup().queues.size()) {}

  const bool takes_time_;
  const std::unique_ptr<Device> device_;

  Mutex switching_;  // held while queues are disabled or enabled; taken before mutex_
  mutable Mutex mutex_;
  std::vector<Queue> queues_ GUARDED_BY(mutex_);
  DeviceFaults faults_ GUARDED_BY(mutex_);
};

// One open() of /dev/dsa/wqN.M. Does not check the caller's process.
class QueueFile {
 public:
  // As ServedDevice::claim(). The device outlives the file. Requires: such a queue.
  static Answer<std::unique_ptr<QueueFile>> open(ServedDevice& device, std::size_t queue,
                                                 std::unique_ptr<AddressSpace> memory);
  // Abandons what is in flight.
  ~QueueFile();
  QueueFile(const QueueFile&) = delete;
  QueueFile& operator=(const QueueFile&) = delete;

  // Returns the bytes of the accepted descriptors: all whole ones in `bytes`, or those before the
  // first refused one. If the first of all is refused: EINVAL: a batch (of a device of version 1),
  // or a record that is not at a multiple of 32; EAGAIN: a shared queue stayed full, is disabled,
  // or its device is halted. A dedicated queue reports nothing. Where descriptors take no modelled
  // time, what was accepted is over when write() returns.
  Answer<std::size_t> write(std::span<const std::byte> bytes);
  // Returns when what was submitted through this file is over; false: not within `bound`.
  bool drain(Nanoseconds bound) const { return device_.device().drain(*memory_, bound); }

 private:
  QueueFile(ServedDevice& device, std::size_t queue, std::unique_ptr<AddressSpace> memory)
      : device_(device), queue_(queue), memory_(std::move(memory)) {}

  std::errc submit(Descriptor& descriptor);

  ServedDevice& device_;
  const std::size_t queue_;
  const std::unique_ptr<AddressSpace> memory_;
};

using Devices = std::vector<std::unique_ptr<ServedDevice>>;

// Devices dsa0, dsa1, ..., with the threads of their engines. Errors: invalid: a set-up is
// impossible; exhausted: no threads.
Result<Devices> open_devices(const std::vector<DeviceSetup>& setups, std::uint64_t seed,
                             std::optional<DeviceRates> rates = {});

// "wq0.1": queue 1 of dsa0.
std::string queue_name(const ServedDevice& device, std::size_t queue);

// Executes lines of the file "control" up to the first that fails: "disable wq0.0", "enable wq0.0",
// "halt dsa0", "recover dsa0", or a chance per descriptor: "fail 0.01 dsa0", "fault-pages ...",
// "lose-records ...", "unknown-statuses ...". Errors: invalid, absent.
Status control(const Devices& devices, std::string_view text);
// The contents of that file: a line of counts per device, and a line per queue.
std::string status_text(const Devices& devices);

}  // namespace headrace::emulator
