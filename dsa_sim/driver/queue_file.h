// SPDX-License-Identifier: Apache-2.0
// One open() of /dev/dsa/wqN.M: what write(), poll() and close() do then, as in the kernel's driver
// (drivers/dma/idxd/cdev.c as of 6.16).
//
// Does not check who calls: Process tells the process that opened the file from others.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dsa_sim/driver/answer.h"
#include "dsa_sim/driver/bus.h"
#include "headrace/units.h"

namespace headrace::emulator {

class QueueFile {
 public:
  // As ServedDevice::claim(). The device outlives the file. Requires: such a queue.
  static Answer<std::unique_ptr<QueueFile>> open(ServedDevice& device, std::size_t queue,
                                                 std::unique_ptr<AddressSpace> memory);
  // Abandons what is in flight.
  ~QueueFile();
  QueueFile(const QueueFile&) = delete;
  QueueFile& operator=(const QueueFile&) = delete;

  // The bytes of the descriptors that were accepted: as many as `bytes` holds whole, or those
  // before the first that was refused. If that is the first: EINVAL for a batch (of a device of
  // version 1) or a record that is not at a multiple of 32; EAGAIN where a shared queue stayed
  // full, is disabled, or its device is halted. A dedicated queue tells nothing. Where descriptors
  // take no modelled time, what was accepted is over when write() returns.
  Answer<std::size_t> write(std::span<const std::byte> bytes);

  // Returns when what was submitted through this file is over; false: not within `bound`.
  bool drain(Nanoseconds bound) const;

 private:
  QueueFile(ServedDevice& device, std::size_t queue, std::uint64_t generation,
            std::unique_ptr<AddressSpace> memory);

  Answer<void> submit(Descriptor& descriptor);
  bool enqueue(const Descriptor& descriptor);

  // Immutable after construction.
  ServedDevice& device_;
  const std::size_t queue_;
  const std::uint64_t generation_;
  const bool shared_;
  const std::unique_ptr<AddressSpace> memory_;
};

}  // namespace headrace::emulator
