// SPDX-License-Identifier: Apache-2.0
// Chooses the copies that a GPU's multiprocessors make instead of its copy engines.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "backend/cuda/cuda.h"
#include "backend/cuda/engines/copy_stream.h"
#include "backend/cuda/engines/engines.h"
#include "headrace/machine.h"

namespace headrace::cuda {

// The size limit for gathered copies: only a few threads make each copy.
inline constexpr Bytes kMostGatheredBytes = 1_MiB;

// The limit for lists, unless another one is stated. Copy engines take 0.8 us of the caller's time
// for each copy and reach 20 GB/s of 55 with copies of 16 KiB. The kernel reaches 51 GB/s with any
// size from 4 KiB on (H200). Larger copies fill the link by engines, which take no time from other
// kernels (docs/design/gpu/copies.md).
inline constexpr GatherLimit kGatherOfLists{.bytes = 128_KiB, .count = 16};

// The limit in the options, else the one in the environment (HEADRACE_GPU_GATHER). Errors: invalid:
// not such a pair of numbers, or larger than kMostGatheredBytes.
Result<std::optional<GatherLimit>> stated_gather_limit(const CudaOptions& options);

// One limit for each direction; 0 bytes: nothing is gathered.
using GatherLimits = std::array<GatherLimit, kDirections>;
// `stated` for all directions, else the measured limit of each between the engine's GPU and the
// host.
GatherLimits gather_limits(const Machine& machine, const Engine& engine,
                           const std::optional<GatherLimit>& stated);

// The driver's answers about the memory around addresses. It asks once for each allocation or
// registration, so an object lives no longer than one call that gives copies. Single-thread.
class MemoryRanges {
 public:
  explicit MemoryRanges(const Driver& driver) : driver_(driver) {}
  // Whether all the bytes lie in one allocation of a GPU or one registration.
  bool hold(CUdeviceptr at, std::size_t bytes) { return find(at, bytes) != nullptr; }
  // Whether, in addition, kernels in the current context reach the bytes at this address.
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
