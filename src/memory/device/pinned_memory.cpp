// SPDX-License-Identifier: Apache-2.0
#include "memory/device/pinned_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/fail.h"

namespace headrace {
namespace {

// Prefers a GPU that has a context in this process, since a new one costs some hundred MiB of it.
// Among those, or if there is none: the GPU whose nearest node is `node`, else the first GPU.
Result<cuda::Device> device_near(const cuda::Driver& driver, NodeId node) {
  HEADRACE_TRY(const auto devices, cuda::find_devices(driver));
  if (devices.empty()) {
    return fail(ErrorCode::absent, "no GPU is visible to pin memory for; see headrace doctor");
  }
  return *std::ranges::max_element(devices, {}, [&](const cuda::Device& device) {
    return std::pair(cuda::Context::made(driver, device.ordinal), device.host_node == raw(node));
  });
}

bool is_pinned(const cuda::Driver& driver, const std::byte* at) {
  unsigned type = 0;
  return driver.cuPointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      reinterpret_cast<std::uintptr_t>(at)) == cuda::CUDA_SUCCESS &&
         type == cuda::CU_MEMORYTYPE_HOST;
}

}  // namespace

Result<std::shared_ptr<const PinnedMemory>> PinnedMemory::pin(std::span<std::byte> memory,
                                                              NodeId node, Bytes most) {
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  HEADRACE_TRY(const cuda::Device device, device_near(*driver, node));
  HEADRACE_TRY(auto context, cuda::Context::of(*driver, device.ordinal));
  std::shared_ptr<PinnedMemory> pinned(new PinnedMemory(std::move(context), memory, most));
  HEADRACE_TRY_STATUS(pinned->register_all());
  return pinned;
}

Status PinnedMemory::register_all() {
  const cuda::Driver& driver = context_->driver();
  const cuda::CurrentContext current(*context_);
  cuda::CUresult result = current.result();
  while (result == cuda::CUDA_SUCCESS && registered_ < memory_.size()) {
    const auto part = memory_.subspan(
        registered_, std::min<std::size_t>(most_.value, memory_.size() - registered_));
    result =
        driver.cuMemHostRegister_v2(part.data(), part.size(), cuda::CU_MEMHOSTREGISTER_PORTABLE);
    if (result != cuda::CUDA_SUCCESS) break;
    registered_ += part.size();
    // Memory that the driver accepted but does not show as pinned would silently be copied as
    // pageable.
    if (is_pinned(driver, part.data()) && is_pinned(driver, &part.back())) continue;
    return fail(ErrorCode::io, "the driver took {} to pin and does not show them pinned",
                to_string(Bytes{part.size()}));
  }
  if (result == cuda::CUDA_SUCCESS) return {};
  // Some drivers repeat a refusal as the result of the next call; this call collects it without
  // waiting.
  std::size_t free = 0;
  std::size_t total = 0;
  driver.cuMemGetInfo_v2(&free, &total);
  auto failed =
      cuda::fail_cuda(driver, result,
                      fmt::format("cannot pin {} (the driver refused after {})",
                                  to_string(Bytes{memory_.size()}), to_string(Bytes{registered_})));
  failed.error().message += "; ask for less, or raise the limits of memory and ulimit -l";
  return failed;
}

void PinnedMemory::unregister() const {
  const cuda::CurrentContext current(*context_);
  for (std::size_t at = 0; at < registered_; at += most_.value) {
    context_->driver().cuMemHostUnregister(memory_.data() + at);
  }
}

PinnedMemory::~PinnedMemory() {
  if (registered_ > 0 && context_->here()) unregister();
}

}  // namespace headrace
