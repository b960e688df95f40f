// SPDX-License-Identifier: Apache-2.0
// The emulated devices whose files are served, each with the state that the kernel's driver (idxd)
// would keep of it: who has its queues open, which queues are enabled, how often ENQCMDS is
// retried.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "dsa_sim/driver/answer.h"
#include "dsa_sim/driver/chances.h"
#include "headrace/result.h"
#include "tests/support/dsa/dsa.h"

namespace headrace::emulator {

// The driver's IDXD_ENQCMDS_RETRIES and IDXD_ENQCMDS_MAX_RETRIES.
inline constexpr unsigned kRetries = 32;
inline constexpr unsigned kMostRetries = 64;

struct ServedOptions {
  std::uint64_t seed = 1;
  unsigned retries = kRetries;
  std::optional<DeviceRates> rates;
};

class ServedDevice {
 public:
  // Makes device dsaN, N being `number`. invalid: the set-up is impossible.
  static Result<std::unique_ptr<ServedDevice>> open(unsigned number, DeviceSetup setup,
                                                    ServedOptions options = {});

  unsigned number() const { return number_; }
  const DeviceSetup& setup() const { return device_->setup(); }
  Device& device() const { return *device_; }
  Chances& chances() const { return *chances_; }
  // Whether write() takes batches: kernels since 6.16 refuse them on devices of version 1 only
  // (INTEL-SA-01084).
  bool takes_batches() const { return setup().version > 0x100; }
  // Whether descriptors take a modelled time.
  bool takes_time() const { return takes_time_; }

  // Opens the queue for one more client: returns the queue's generation, for release() and
  // is_current(). EBUSY: a dedicated queue that is open already; ENXIO: a disabled queue, or a
  // dedicated one of a halted device.
  Answer<std::uint64_t> claim(std::size_t queue);
  void release(std::size_t queue, std::uint64_t generation);
  // False: the queue is dedicated and was disabled since that generation, so descriptors submitted
  // through files opened in it are lost: the driver sets the queue's PASID at open(), and disabling
  // takes it away.
  bool is_current(std::size_t queue, std::uint64_t generation) const;
  int clients(std::size_t queue) const;

  // Whether the queue is enabled; its device may be halted nevertheless.
  bool configured(std::size_t queue) const;
  // As by "accel-config disable-wq", which waits for what the queue accepted, and by enabling it
  // again with the set-up it had: one at a time, as the driver's lock of a queue has it, since a
  // queue that is enabled while it is waited for would accept more without end.
  void disable(std::size_t queue);
  void enable(std::size_t queue);

  // The code in the register SWERROR: that of a descriptor that was dropped, or whose record could
  // not be written; 0: none so far. The driver never clears it.
  std::uint8_t error() const;

  unsigned retries(std::size_t queue) const;
  // Sets them, to kMostRetries at most.
  void set_retries(std::size_t queue, unsigned retries);

 private:
  struct Queue {
    bool configured = true;
    std::uint64_t generation = 0;  // how often it was disabled
    int clients = 0;
    unsigned retries = kRetries;
  };

  ServedDevice(unsigned number, std::unique_ptr<Chances> chances, std::unique_ptr<Device> device,
               const ServedOptions& options);

  // Immutable after construction.
  const unsigned number_;
  const bool takes_time_;
  const std::unique_ptr<Chances> chances_;  // outlives device_, which asks it
  const std::unique_ptr<Device> device_;

  Mutex switching_;  // held while queues are disabled or enabled; taken before mutex_
  mutable Mutex mutex_;
  std::vector<Queue> queues_ GUARDED_BY(mutex_);
};

// All devices, named dsa0, dsa1, ... as on the kernel's bus "dsa".
class Bus {
 public:
  // invalid: a set-up is impossible.
  static Result<Bus> open(const std::vector<DeviceSetup>& setups, ServedOptions options = {});
  // Starts the threads of their engines. exhausted: the system gives no more threads.
  Status start();

  const std::vector<std::unique_ptr<ServedDevice>>& devices() const { return devices_; }
  struct QueueName {
    ServedDevice* device;
    std::size_t queue;
  };
  // By the kernel's names, "dsa1" and "wq1.0". absent: there is none; lists those there are.
  Result<ServedDevice*> find_device(std::string_view name) const;
  Result<QueueName> find_queue(std::string_view name) const;

 private:
  std::vector<std::unique_ptr<ServedDevice>> devices_;
};

}  // namespace headrace::emulator
