// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs that others in this process allocated, such as tensors of PyTorch: which GPU's it
// is, and when what a stream of theirs has for it is done.
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

namespace headrace::cuda {
class StreamPoint;
}

namespace HEADRACE_API headrace {

// The GPU that has `bytes` bytes at a CUdeviceptr, as CUDA counts those of this process. absent:
// there is no driver. invalid: the memory is not all of one GPU, or is managed, whose pages have no
// place of their own.
Result<int> gpu_ordinal(std::uint64_t device_address, Bytes bytes);
// The same as a node. absent: the machine has not that GPU either.
Result<NodeId> gpu_node(const Machine& machine, std::uint64_t device_address, Bytes bytes);

// As long as Headrace waits for what a stream of others has been given: a minute of kernels is far
// more than any computes ahead.
inline constexpr Nanoseconds kStreamBound = std::chrono::seconds{60};

// What a stream (a CUstream as a number; 0 is the default one) has been given so far.
class StreamWork {
 public:
  // `gpu`: as gpu_ordinal() counts. invalid: the stream is not of the primary context of that GPU,
  // or is captured. Requires: a stream that there is.
  static Result<StreamWork> of(int gpu, std::uint64_t stream);
  // Until it is done. timed_out: it is not; it goes on, so one may wait again.
  Status wait(Nanoseconds timeout, const Clock& clock = system_clock(),
              Waiting& waiting = system_waiting()) const;

 private:
  explicit StreamWork(std::shared_ptr<const cuda::StreamPoint> end) : end_(std::move(end)) {}
  std::shared_ptr<const cuda::StreamPoint> end_;
};

}  // namespace HEADRACE_API headrace
