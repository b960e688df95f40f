// Copies one after the other in a stream, and pages that the driver moves: payload per second.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Copies of `bytes` each over an area that is larger; of `both` the value is the sum, and the
// details `to_gpu` and `from_gpu` are what each direction had. What arrived is compared once.
Prepared prepare_copies(const GpuSetting& setting, Random& random);

// Managed memory, brought to the GPU or back to the host in parts of `bytes`.
Prepared prepare_prefetch(const GpuSetting& setting, Random& random);

// Copies `count` blocks of `block` bytes from an address of the device to one, by its
// multiprocessors; with indices on the device those blocks.
struct BlockCopy {
  cuda::CUdeviceptr to = 0;
  cuda::CUdeviceptr from = 0;
  std::uint64_t count = 1;
  std::uint64_t block = 0;
  cuda::CUdeviceptr to_index = 0;
  cuda::CUdeviceptr from_index = 0;
};
class BlockCopier {
 public:
  static Result<BlockCopier> load(const GpuWorkspace& space);
  cuda::CUresult launch(const GpuWorkspace& space, BlockCopy copy, cuda::CUstream stream) const;

 private:
  cuda::CUfunction kernel_ = nullptr;
  unsigned blocks_ = 0;
};

}  // namespace headrace::experiment_gpu
