// SPDX-License-Identifier: Apache-2.0
// Memory that is registered with the driver of GPUs: its pages stay where they are, and copy
// engines reach them at full speed. The memory itself is another's.
//
// Registered in parts: one registration of 512 GiB or more fails in drivers of 580 and later, whose
// table of its pages then has more than 2 GiB (docs/design/gpu.md). Thread-safe.
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
  // All of `memory`, or nothing and the reason: absent: no driver. exhausted or denied: the driver
  // refused a part. By a GPU that has a context, else by the one nearest to `node`; all GPUs reach
  // it. Requires: whole pages, in RAM;
  // `most` a multiple of their size. It must stay mapped until this ends.
  static Result<std::shared_ptr<const PinnedMemory>> pin(std::span<std::byte> memory, NodeId node,
                                                         Bytes most = kMostPinnedAtOnce);
  // Unregisters; nothing in a child made by fork().
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
