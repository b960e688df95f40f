// SPDX-License-Identifier: Apache-2.0
// A registration of existing memory with the GPU driver. Registered pages do not move, and copy
// engines reach them at full speed. This class does not own the memory. Thread-safe.
//
// Memory is registered in parts. Drivers of 580 and later fail to register 512 GiB or more at once,
// because their table of the pages then exceeds 2 GiB (docs/design/gpu.md).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/cuda/cuda.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

inline constexpr Bytes kMostPinnedAtOnce = 64_GiB;

class PinnedMemory {
 public:
  // Registers all of `memory`, or none of it. Uses a GPU that has a context already, else the GPU
  // nearest to `node`; every GPU then reaches the memory. Requires: whole pages, in RAM; `most` is
  // a multiple of their size; the memory stays mapped until this object ends. Errors: absent: no
  // driver; exhausted, denied: the driver refused a part.
  static Result<std::shared_ptr<const PinnedMemory>> pin(std::span<std::byte> memory, NodeId node,
                                                         Bytes most = kMostPinnedAtOnce);
  // Unregisters the memory. Does nothing in a child made by fork().
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  PinnedMemory(std::shared_ptr<const cuda::Context> context, std::span<std::byte> memory,
               Bytes most)
      : context_(std::move(context)), memory_(memory), most_(most) {}
  Status register_all();
  void unregister() const;

  const std::shared_ptr<const cuda::Context> context_;
  const std::span<std::byte> memory_;
  const Bytes most_;
  std::size_t registered_ = 0;  // bytes from the front; constant after pin()
};

}  // namespace headrace
