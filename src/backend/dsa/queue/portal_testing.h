// SPDX-License-Identifier: Apache-2.0
// A device that a test controls: it keeps its descriptors, and answers when the test says so.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/dsa/queue/open_queue.h"

namespace headrace::dsa::test {

inline constexpr Nanoseconds kLimit = std::chrono::seconds{5};

// Single-thread.
struct HeldDevice {
  // Set by the test.
  bool batches = true;
  std::size_t room = std::numeric_limits<std::size_t>::max();  // descriptors that it still takes
  std::optional<Error> refusal;                                // for everything
  std::function<bool(const Descriptor&)> refuses;              // true: this descriptor is invalid
  std::optional<Error> closed;                                 // the error when it is opened
  std::vector<Descriptor> late;  // answered just before the portal is closed
  // Observed by the test.
  std::vector<Descriptor> taken;
  std::vector<std::size_t> offered;  // by each call
  unsigned opens = 0;
  unsigned closes = 0;

  OpenPortal opener();
};

// Writes the record as a device does; status last.
inline void answer(const Descriptor& descriptor, Code code, std::uint32_t completed = 0) {
  auto* const record = reinterpret_cast<Record*>(descriptor.record);
  record->completed = completed;
  __atomic_store_n(&record->status, static_cast<std::uint8_t>(code), __ATOMIC_RELEASE);
}

// Makes a copy and answers it.
inline void copy(const Descriptor& descriptor) {
  std::memmove(reinterpret_cast<void*>(descriptor.destination),
               reinterpret_cast<const void*>(descriptor.source), descriptor.size);
  answer(descriptor, Code::success);
}

inline std::span<const Descriptor> list_of(const Descriptor& batch) {
  return {reinterpret_cast<const Descriptor*>(batch.source), batch.size};
}

class HeldPortal final : public Portal {
 public:
  explicit HeldPortal(HeldDevice& device) : device_(device) { ++device_.opens; }
  ~HeldPortal() override {
    for (const Descriptor& each : std::exchange(device_.late, {})) copy(each);
    ++device_.closes;
  }

  Result<std::size_t> submit(std::span<const Descriptor> descriptors) override {
    device_.offered.push_back(descriptors.size());
    if (device_.refusal) return Unexpected(*device_.refusal);
    std::size_t count = 0;
    for (const Descriptor& each : descriptors) {
      if (device_.room == 0) break;
      if (device_.refuses && device_.refuses(each)) {
        if (count > 0) break;
        return Unexpected(Error{ErrorCode::invalid, "not this one"});
      }
      device_.taken.push_back(each);
      --device_.room;
      ++count;
    }
    return count;
  }
  bool takes_batches() const override { return device_.batches; }
  std::string_view name() const override { return "held"; }

 private:
  HeldDevice& device_;
};

inline OpenPortal HeldDevice::opener() {
  return [this](const WorkQueue&) -> Result<std::unique_ptr<Portal>> {
    if (closed) return Unexpected(*closed);
    return std::make_unique<HeldPortal>(*this);
  };
}

inline WorkQueue held_queue(std::string name = "wq0.0", std::uint32_t size = 64) {
  WorkQueue queue{.name = std::move(name),
                  .size = size,
                  .threshold = size,
                  .max_transfer = 1 << 20,
                  .max_batch = 32};
  for (const Opcode opcode : {Opcode::memmove, Opcode::batch}) queue.operations.set(opcode);
  return queue;
}

// `size` bytes of memory, and a second part of the same size that copies fill.
class Halves {
 public:
  explicit Halves(std::size_t size) : from_(size), to_(size) {
    for (std::size_t i = 0; i < size; ++i) from_[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }
  Submission submission(std::size_t at, std::size_t bytes, std::uint64_t tag = 0) const {
    return {.copy = {.source = reinterpret_cast<std::uintptr_t>(from_.data() + at),
                     .destination = reinterpret_cast<std::uintptr_t>(to_.data() + at),
                     .bytes = bytes},
            .tag = tag};
  }
  // Makes `count` copies of `bytes` bytes each, one after the other; tags from 0.
  std::vector<Submission> submissions(std::size_t count, std::size_t bytes) const {
    std::vector<Submission> made;
    for (std::size_t i = 0; i < count; ++i) made.push_back(submission(i * bytes, bytes, i));
    return made;
  }
  bool equal() const { return from_ == to_; }

 private:
  std::vector<std::uint8_t> from_;
  std::vector<std::uint8_t> to_;
};

}  // namespace headrace::dsa::test
