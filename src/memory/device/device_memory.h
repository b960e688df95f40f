// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, for a Buffer. Thread-safe.
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
  // Zeroed memory of the GPU that `gpu` is. absent: no driver here, or it does not show that GPU.
  // exhausted: it has not that much free. timed_out: the GPU is too busy to zero it; the memory is
  // lost to this process.
  static Result<std::shared_ptr<const DeviceMemory>> allocate(const Node& gpu, Bytes bytes);
  // As loss_of() of memory.h.
  static std::optional<Error> loss_of(const Node& gpu);
  // Nothing in a child made by fork(), whose parent goes on using it.
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
