#include "backend/dsa_sim/queue_file.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "headrace/clock.h"

namespace headrace::dsa {

QueueFile::QueueFile(ServedDevice& device, std::size_t queue, std::uint64_t round,
                     std::unique_ptr<AddressSpace> memory)
    : device_(device),
      queue_(queue),
      round_(round),
      shared_(device.setup().queues[queue].shared),
      memory_(std::move(memory)) {}

Answer<std::unique_ptr<QueueFile>> QueueFile::open(ServedDevice& device, std::size_t queue,
                                                   std::unique_ptr<AddressSpace> memory) {
  const Answer<std::uint64_t> round = device.claim(queue);
  if (!round) return refuse(round.error());
  return std::unique_ptr<QueueFile>(new QueueFile(device, queue, *round, std::move(memory)));
}

QueueFile::~QueueFile() {
  device_.device().forget(memory_);
  device_.release(queue_, round_);
}

// False: ENQCMDS said retry.
bool QueueFile::enqueue(const Descriptor& descriptor) {
  if (shared_) return device_.device().enqcmd(queue_, memory_, descriptor);
  if (device_.is_current(queue_, round_)) {
    device_.device().movdir64b(queue_, memory_, descriptor);
  }
  return true;
}

// idxd_submit_user_descriptor(): the alignment of the record is checked even where there is none.
Answer<void> QueueFile::submit(Descriptor& descriptor) {
  if (descriptor.opcode() == Opcode::batch && !device_.takes_batches()) {
    return refuse(std::errc::invalid_argument);
  }
  if (descriptor.record % sizeof(Record) != 0) return refuse(std::errc::invalid_argument);
  used_ = true;
  descriptor.owner = 0;
  const unsigned tries = device_.retries(queue_) + 1;
  for (unsigned i = 0; i < tries; ++i) {
    if (enqueue(descriptor)) return {};
  }
  return refuse(std::errc::resource_unavailable_try_again);
}

Answer<std::size_t> QueueFile::write(std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (bytes.size() - done >= sizeof(Descriptor)) {
    Descriptor descriptor;
    std::memcpy(&descriptor, bytes.data() + done, sizeof(descriptor));
    if (const Answer<void> accepted = submit(descriptor); !accepted) {
      if (done > 0) break;
      return refuse(accepted.error());
    }
    done += sizeof(Descriptor);
  }
  return done;
}

bool QueueFile::drain(Nanoseconds bound) {
  if (!used_.exchange(false)) return true;
  const Nanoseconds end = system_clock().now() + bound;
  const std::uint64_t number = ++drains_;
  Descriptor drain;
  drain.set(Opcode::drain, flag::record_valid | flag::request_record);
  drain.record = ClientMemory::record_of(number);
  // A dedicated queue drops it when it is full, so it is sent until it answers.
  while (system_clock().now() < end) {
    // Disabling abandoned what was under way.
    if (!device_.device().enabled(queue_) || !device_.is_current(queue_, round_)) return true;
    const bool sent = enqueue(drain);
    const Nanoseconds left = end - system_clock().now();
    const Nanoseconds patience = std::chrono::milliseconds{shared_ ? 100 : 10};
    if (sent && memory_.wait(number, std::min(left, patience))) return true;
    if (!sent) std::this_thread::yield();
  }
  return false;
}

}  // namespace headrace::dsa
