// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/queue_file.h"

#include <cstring>
#include <utility>

namespace headrace::emulator {
namespace {

// A bound for a client that submits gigabytes: they are copied on after its write().
constexpr Nanoseconds kAtOnce = std::chrono::seconds{10};

}  // namespace

QueueFile::QueueFile(ServedDevice& device, std::size_t queue, std::uint64_t generation,
                     std::unique_ptr<AddressSpace> memory)
    : device_(device),
      queue_(queue),
      generation_(generation),
      shared_(device.setup().queues[queue].shared),
      memory_(std::move(memory)) {}

Answer<std::unique_ptr<QueueFile>> QueueFile::open(ServedDevice& device, std::size_t queue,
                                                   std::unique_ptr<AddressSpace> memory) {
  const Answer<std::uint64_t> generation = device.claim(queue);
  if (!generation) return refuse(generation.error());
  return std::unique_ptr<QueueFile>(new QueueFile(device, queue, *generation, std::move(memory)));
}

QueueFile::~QueueFile() {
  device_.device().forget(*memory_);
  device_.release(queue_, generation_);
}

// False: ENQCMDS said retry.
bool QueueFile::enqueue(const Descriptor& descriptor) {
  if (shared_) return device_.device().enqcmd(queue_, *memory_, descriptor);
  if (device_.is_current(queue_, generation_)) {
    device_.device().movdir64b(queue_, *memory_, descriptor);
  }
  return true;
}

// idxd_submit_user_descriptor(): the alignment of the record is checked even where there is none.
Answer<void> QueueFile::submit(Descriptor& descriptor) {
  if (descriptor.opcode() == Opcode::batch && !device_.takes_batches()) {
    return refuse(std::errc::invalid_argument);
  }
  if (descriptor.record % sizeof(Record) != 0) return refuse(std::errc::invalid_argument);
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
  // Programs that probe a queue give it microseconds, fewer than FUSE and a thread need.
  if (!device_.takes_time()) drain(kAtOnce);
  return done;
}

bool QueueFile::drain(Nanoseconds bound) const { return device_.device().drain(*memory_, bound); }

}  // namespace headrace::emulator
