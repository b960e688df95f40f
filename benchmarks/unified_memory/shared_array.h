// SPDX-License-Identifier: Apache-2.0
// The array of the experiment: managed memory with its advice, or memory of a host node.
// Single-thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "benchmarks/unified_memory/unified_memory.h"
#include "measure/instruments/gpu/gpu_session.h"

namespace headrace {

class SharedArray {
 public:
  // Allocates the array and gives the driver its advice. Requires: the session outlives it.
  static Result<std::unique_ptr<SharedArray>> make(const Machine& machine, GpuSession& gpu,
                                                   const cuda::Device& device,
                                                   const UnifiedMemoryCase& asked);
  ~SharedArray();
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;

  cuda::CUdeviceptr address() const { return address_; }
  // For the host; only while no kernel uses the array.
  std::span<std::uint32_t> words() const;
  std::optional<Residency> residency() const;
  // Whether the driver reports the advice that it was given; nullopt: it cannot be asked, or the
  // memory is not managed.
  std::optional<bool> advice_confirmed(const UnifiedMemoryCase& asked) const;
  // Prefetches a part of managed memory to the GPU.
  Status prefetch(std::uint64_t offset, std::uint64_t size, cuda::CUstream stream) const;

 private:
  explicit SharedArray(GpuSession& gpu, Bytes size) : gpu_(gpu), size_(size) {}
  Status allocate_managed(const cuda::Device& device, const UnifiedMemoryCase& asked);
  Status allocate_on_host(const Machine& machine, const cuda::Device& device,
                          const UnifiedMemoryCase& asked);
  Status advise(cuda::CUmem_advise advice, bool about_host) const;

  GpuSession& gpu_;
  const Bytes size_;
  cuda::CUdeviceptr address_ = 0;
  bool managed_ = false;
  std::unique_ptr<Buffer> buffer_;  // set for host memory
};

}  // namespace headrace
