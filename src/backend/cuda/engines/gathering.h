// SPDX-License-Identifier: Apache-2.0
// Which copies of a lane its GPU's multiprocessors may make, in the place of the copy engines.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "backend/cuda/cuda.h"
#include "backend/cuda/engines/copy_stream.h"
#include "backend/cuda/engines/engines.h"
#include "headrace/machine.h"

namespace headrace::cuda {

// No larger ones: a few threads make each.
inline constexpr Bytes kMostGatheredBytes = 1_MiB;

// Lists, unless something else is stated: copy engines take 0.8 us of the caller for each copy and
// reach 20 GB/s of 55 with 16 KiB, the kernel 51 with anything from 4 KiB (H200). Larger copies
// fill the link by engines, which take nothing from kernels of others (docs/design/gpu.md).
inline constexpr GatherLimit kGatherOfLists{.bytes = 128_KiB, .count = 16};

// What the options say, or the environment (HEADRACE_GPU_GATHER) where they say nothing. invalid:
// it is no such pair of numbers, or larger than kMostGatheredBytes.
Result<std::optional<GatherLimit>> stated_gather_limit(const CudaOptions& options);

// By direction; 0 bytes: nothing is gathered.
using GatherLimits = std::array<GatherLimit, kDirections>;
// `stated` for all directions, else what was measured of each between the engine's GPU and the
// host.
GatherLimits gather_limits(const Machine& machine, const Engine& engine,
                           const std::optional<GatherLimit>& stated);

// What the driver says of the memory around addresses: asked once for each allocation or
// registration, so that it lives no longer than one call to give copies. Single-thread.
class MemoryRanges {
 public:
  explicit MemoryRanges(const Driver& driver) : driver_(driver) {}
  // Whether all the bytes lie in one allocation of a GPU or one registration.
  bool hold(CUdeviceptr at, std::size_t bytes) { return find(at, bytes) != nullptr; }
  // And kernels in the current context reach them at this address.
  bool reached(CUdeviceptr at, std::size_t bytes);

 private:
  struct Range {
    CUdeviceptr begin = 0;
    std::size_t size = 0;
    std::optional<bool> reached = {};
  };
  Range* find(CUdeviceptr at, std::size_t bytes);

  const Driver& driver_;
  std::array<Range, 8> known_;
  std::size_t next_ = 0;
};

}  // namespace headrace::cuda
