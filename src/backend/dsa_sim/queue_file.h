// One open() of /dev/dsa/wqN.M: what write(), poll() and close() do then, as in the kernel's driver
// (drivers/dma/idxd/cdev.c as of 6.16).
//
// Not who may: the process that opened the file is told from others by Process. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/dsa_sim/answer.h"
#include "backend/dsa_sim/bus.h"
#include "backend/dsa_sim/client_memory.h"
#include "headrace/units.h"

namespace headrace::dsa {

class QueueFile {
 public:
  // As ServedDevice::claim(). The device outlives the file. Requires: such a queue.
  static Answer<std::unique_ptr<QueueFile>> open(ServedDevice& device, std::size_t queue,
                                                 std::unique_ptr<AddressSpace> memory);
  // Abandons what is under way.
  ~QueueFile();
  QueueFile(const QueueFile&) = delete;
  QueueFile& operator=(const QueueFile&) = delete;

  // The bytes of the descriptors that were accepted: as many as `bytes` holds whole, or those
  // before the first that was refused. If that is the first: EINVAL for a batch (of a device of
  // version 1) or a record that is not at a multiple of 32; EAGAIN where a shared queue stayed
  // full, is disabled, or its device is halted. A dedicated queue tells nothing.
  Answer<std::size_t> write(std::span<const std::byte> bytes);

  // Until what was submitted through this file is over; false: not within `bound`.
  bool drain(Nanoseconds bound);

 private:
  QueueFile(ServedDevice& device, std::size_t queue, std::uint64_t round,
            std::unique_ptr<AddressSpace> memory);

  Answer<void> submit(Descriptor& descriptor);
  bool enqueue(const Descriptor& descriptor);

  // Immutable after construction.
  ServedDevice& device_;
  const std::size_t queue_;
  const std::uint64_t round_;
  const bool shared_;

  ClientMemory memory_;
  std::atomic<bool> used_ = false;  // since the last drain
  std::atomic<std::uint64_t> drains_ = 0;
};

}  // namespace headrace::dsa
