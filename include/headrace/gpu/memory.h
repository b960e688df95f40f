// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs that another library in this process allocated, such as tensors of PyTorch: finds
// the GPU, and waits for the work of that library's streams.
//
// Such memory is a DeviceRange (object.h). Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "headrace/clock.h"
#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "headrace/waiting.h"

namespace headrace::cuda {
class StreamPoint;
}

namespace HEADRACE_API headrace {

// The GPU that has `bytes` bytes at a CUdeviceptr, numbered as CUDA numbers GPUs in this process.
// Errors: absent: there is no driver. invalid: the memory is not all of one GPU, or is managed
// memory, whose pages have no fixed place.
Result<int> gpu_ordinal(std::uint64_t device_address, Bytes bytes);
// The same as a node. Errors: absent: also if the machine does not list this GPU.
Result<NodeId> gpu_node(const Machine& machine, std::uint64_t device_address, Bytes bytes);

// How long Headrace waits for work in another library's stream: no program queues a minute of
// kernels ahead.
inline constexpr Nanoseconds kStreamBound = std::chrono::seconds{60};

// The work submitted to a stream so far. A stream is a CUstream as a number; 0 is the default one.
class StreamWork {
 public:
  // `gpu`: as returned by gpu_ordinal(). Requires: the stream exists.
  // Errors: invalid: the stream is not of the GPU's primary context, or is being captured.
  static Result<StreamWork> of(int gpu, std::uint64_t stream);
  // Waits until the work is done. Errors: timed_out: not done; the work continues, so wait again.
  Status wait(Nanoseconds timeout, const Clock& clock = system_clock(),
              Waiting& waiting = system_waiting()) const;

 private:
  explicit StreamWork(std::shared_ptr<const cuda::StreamPoint> end) : end_(std::move(end)) {}
  std::shared_ptr<const cuda::StreamPoint> end_;
};

}  // namespace HEADRACE_API headrace
