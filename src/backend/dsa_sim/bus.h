// The devices that are served, with what the kernel's driver would keep of each: who has its queues
// open, which of them are enabled, how often ENQCMDS is retried.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/dsa_device/dsa_device.h"
#include "backend/dsa_sim/answer.h"
#include "backend/dsa_sim/chances.h"
#include "core/mutex.h"
#include "headrace/result.h"

namespace headrace::dsa {

// IDXD_ENQCMDS_RETRIES and IDXD_ENQCMDS_MAX_RETRIES of the driver.
inline constexpr unsigned kRetries = 32;
inline constexpr unsigned kMostRetries = 64;

struct ServedOptions {
  std::uint64_t seed = 1;
  unsigned retries = kRetries;
  std::optional<DeviceRates> rates;
};

class ServedDevice {
 public:
  // invalid: the set-up is impossible. `number` is N of dsaN.
  static Result<std::unique_ptr<ServedDevice>> open(unsigned number, DeviceSetup setup,
                                                    ServedOptions options = {});

  unsigned number() const { return number_; }
  const DeviceSetup& setup() const { return device_->setup(); }
  SoftwareDevice& device() const { return *device_; }
  Chances& chances() const { return *chances_; }
  // Whether write() takes batches: kernels since 6.16 refuse them only of version 1
  // (INTEL-SA-01084).
  bool takes_batches() const { return setup().version > 0x100; }

  // One more has the queue open: the round it is of. EBUSY: a dedicated queue that somebody has;
  // ENXIO: a disabled queue, or a dedicated one of a halted device.
  Answer<std::uint64_t> claim(std::size_t queue);
  void release(std::size_t queue, std::uint64_t round);
  // What is submitted by files of an earlier round goes nowhere, if the queue is dedicated: the
  // driver set its PASID at open(), and disabling took it away.
  bool is_current(std::size_t queue, std::uint64_t round) const;
  int clients(std::size_t queue) const;

  // Enabled, as far as its configuration goes; the device may be halted.
  bool configured(std::size_t queue) const;
  // As by "accel-config disable-wq" with force, and by enabling it again with the set-up it had.
  void disable(std::size_t queue);
  void enable(std::size_t queue);

  // The code in the register SWERROR: of a descriptor that was dropped, or whose record could not
  // be written; 0: none so far. The driver never forgets one.
  std::uint8_t error() const;

  unsigned retries(std::size_t queue) const;
  // At most kMostRetries.
  void set_retries(std::size_t queue, unsigned retries);

 private:
  struct Queue {
    bool configured = true;
    std::uint64_t round = 0;  // how often it was disabled
    int clients = 0;
    unsigned retries = kRetries;
  };

  ServedDevice(unsigned number, std::unique_ptr<Chances> chances,
               std::unique_ptr<SoftwareDevice> device, unsigned retries);

  // Immutable after construction.
  const unsigned number_;
  const std::unique_ptr<Chances> chances_;  // the device asks it, so it goes later
  const std::unique_ptr<SoftwareDevice> device_;

  mutable Mutex mutex_;
  std::vector<Queue> queues_ GUARDED_BY(mutex_);
};

// dsa0, dsa1, ...
class Bus {
 public:
  // invalid: a set-up is impossible.
  static Result<Bus> open(const std::vector<DeviceSetup>& setups, ServedOptions options = {});
  // Their engines run from now on. exhausted: no threads to be had.
  Status start();

  const std::vector<std::unique_ptr<ServedDevice>>& devices() const { return devices_; }
  struct QueueName {
    ServedDevice* device;
    std::size_t queue;
  };
  // "dsa1"; "wq1.0". absent: none, with those there are.
  Result<ServedDevice*> find_device(std::string_view name) const;
  Result<QueueName> find_queue(std::string_view name) const;

 private:
  std::vector<std::unique_ptr<ServedDevice>> devices_;
};

}  // namespace headrace::dsa
