// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gather.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernel_module.h"
#include "core/fail.h"

namespace headrace::cuda {
namespace {

// 16 blocks of 256 threads have 256 KiB in flight: more than what a link of 64 GB/s takes, on an
// eighth of the multiprocessors of a large GPU.
constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 16;

}  // namespace

bool fits_gather(const ListedCopy& copy) {
  return (copy.to | copy.from | copy.bytes) % kGatherAlignment == 0;
}

CUresult gather(const Driver& driver, CUfunction kernel, std::span<const ListedCopy> copies,
                CUstream stream, std::size_t& put) {
  put = 0;
  while (put < copies.size()) {
    const auto part = copies.subspan(put, std::min(copies.size() - put, kMostGathered));
    CopyList list{.count = part.size()};
    std::ranges::copy(part, list.copies.begin());
    std::array<void*, 1> parameters{&list};
    const auto blocks = static_cast<unsigned>(std::min(part.size(), kMostBlocks));
    const CUresult result = driver.cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                                  parameters.data(), nullptr);
    if (result != CUDA_SUCCESS) return result;
    put += part.size();
  }
  return CUDA_SUCCESS;
}

Result<std::unique_ptr<GatherKernel>> GatherKernel::load(const Context& context) {
  std::unique_ptr<GatherKernel> made(new GatherKernel(context));
  const Driver& driver = context.driver();
  HEADRACE_TRY(made->module_, load_kernels(driver));
  const CUresult result = driver.cuModuleGetFunction(&made->function_, made->module_, kGather);
  if (result != CUDA_SUCCESS) return fail_cuda(driver, result, "cannot load the gather kernel");
  return made;
}

GatherKernel::~GatherKernel() {
  if (module_ != nullptr && context_.here()) context_.driver().cuModuleUnload(module_);
}

}  // namespace headrace::cuda
