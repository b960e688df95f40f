// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gather.h"

#include <algorithm>
#include <array>

#include "core/fail.h"

namespace headrace::cuda {
namespace {

// 16 blocks of 256 threads have 256 KiB in flight. That is more than a link of 64 GB/s takes, and
// uses an eighth of a large GPU's multiprocessors.
constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 16;

// A warp copies one entry of a list, with 4 KiB in flight. 16 blocks reach 51 of 55 GB/s on an
// H200, and more blocks are no faster (docs/results/2026-11-27-gpu-link.md).
constexpr unsigned kThreadsOfList = 512;
constexpr std::size_t kWarps = kThreadsOfList / 32;
// Larger copies become several entries, so that all warps end at about the same time: 256 warps
// copy 16 KiB each in 80 us.
constexpr std::uint64_t kEntry = 4096;

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
  CUresult result = driver.cuModuleGetFunction(&made->function_, made->module_, kGather);
  if (result == CUDA_SUCCESS) {
    result = driver.cuModuleGetFunction(&made->of_list_, made->module_, kGatherList);
  }
  if (result != CUDA_SUCCESS) return fail_cuda(driver, result, "cannot load the gather kernel");
  return made;
}

GatherKernel::~GatherKernel() {
  if (module_ != nullptr && context_.here()) context_.driver().cuModuleUnload(module_);
}

GatherList::~GatherList() {
  if (list_ != nullptr && context_.here()) context_.driver().cuMemFreeHost(list_);
}

bool GatherList::launch(const GatherKernel& kernel, std::span<const ListedCopy> copies,
                        CUstream stream) {
  const Driver& driver = context_.driver();
  std::uint64_t count = 0;
  for (const ListedCopy& copy : copies) count += (copy.bytes + kEntry - 1) / kEntry;
  if (count == 0 || count > kMost) return false;
  if (list_ == nullptr) {
    void* made = nullptr;
    constexpr unsigned kFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    if (driver.cuMemHostAlloc(&made, kMost * sizeof(ListedCopy), kFlags) != CUDA_SUCCESS) {
      return false;
    }
    list_ = static_cast<ListedCopy*>(made);
  }
  ListedCopy* entry = list_;
  for (const ListedCopy& copy : copies) {
    for (std::uint64_t at = 0; at < copy.bytes; at += kEntry) {
      *entry++ = {copy.to + at, copy.from + at, std::min(kEntry, copy.bytes - at)};
    }
  }
  CUdeviceptr list = 0;
  if (driver.cuMemHostGetDevicePointer_v2(&list, list_, 0) != CUDA_SUCCESS) return false;
  std::array<void*, 2> parameters{&list, &count};
  const auto blocks =
      static_cast<unsigned>(std::min<std::uint64_t>((count + kWarps - 1) / kWarps, kMostBlocks));
  return driver.cuLaunchKernel(kernel.of_list(), blocks, 1, 1, kThreadsOfList, 1, 1, 0, stream,
                               parameters.data(), nullptr) == CUDA_SUCCESS;
}

}  // namespace headrace::cuda
