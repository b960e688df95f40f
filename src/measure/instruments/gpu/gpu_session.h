// SPDX-License-Identifier: Apache-2.0
// GPU resources of one thread that runs kernels on borrowed memory: context, kernels, streams and
// events, all released with it. Waits have a bound. A GPU that exceeds it keeps all of them, and
// the memory that its kernels may still touch. Single-thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/cuda/cuda.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

class GpuSession {
 public:
  // The context is current in the calling thread until the session ends.
  static Result<std::unique_ptr<GpuSession>> open(const cuda::Driver& driver,
                                                  const cuda::Device& device);
  ~GpuSession();
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  const cuda::Driver& driver() const { return context_->driver(); }
  cuda::CUdevice device() const { return context_->device(); }
  Result<int> attribute(cuda::CUdevice_attribute what) const;
  Result<Bytes> free_memory() const;

  Result<cuda::CUfunction> kernel(const char* name) const;
  // Blocks of `threads` threads that run on a multiprocessor at the same time; nullopt: unknown to
  // the driver.
  Result<std::optional<unsigned>> resident_blocks(cuda::CUfunction kernel, unsigned threads) const;
  Result<cuda::CUstream> stream();
  Result<cuda::CUevent> event();
  // One word of 4 bytes in device memory.
  Result<cuda::CUdeviceptr> word();
  // Converts a driver result to a Status; `what` names the failed call.
  Status ok(cuda::CUresult result, std::string_view what) const;
  // Errors: timed_out: the event did not happen in time; from then on stuck().
  Status wait(cuda::CUevent event, Nanoseconds limit);
  bool stuck() const { return stuck_; }

 private:
  explicit GpuSession(std::shared_ptr<const cuda::Context> context);

  std::shared_ptr<const cuda::Context> context_;
  std::optional<cuda::CurrentContext> current_;
  cuda::CUmodule module_ = nullptr;
  std::vector<cuda::CUstream> streams_;
  std::vector<cuda::CUevent> events_;
  std::vector<cuda::CUdeviceptr> words_;
  bool stuck_ = false;
};

}  // namespace headrace
