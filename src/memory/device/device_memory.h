// SPDX-License-Identifier: Apache-2.0
// The memory of a GPU behind a Buffer. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/cuda/cuda.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

class DeviceMemory {
 public:
  // Allocates zeroed memory of the GPU `gpu`. Errors: absent: no driver here, or the driver does
  // not show this GPU; exhausted: too little is free; timed_out: the GPU is too busy to zero the
  // memory, which is then lost to this process.
  static Result<std::shared_ptr<const DeviceMemory>> allocate(const Node& gpu, Bytes bytes);
  // As loss_of() in memory.h.
  static std::optional<Error> loss_of(const Node& gpu);
  // Does nothing in a child made by fork(): its parent still uses the memory.
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::uint64_t address() const { return address_; }
  Bytes size() const { return size_; }

 private:
  DeviceMemory(std::shared_ptr<const cuda::Context> context, std::uint64_t address, Bytes size)
      : context_(std::move(context)), address_(address), size_(size) {}

  const std::shared_ptr<const cuda::Context> context_;
  const std::uint64_t address_;
  const Bytes size_;
};

}  // namespace headrace
