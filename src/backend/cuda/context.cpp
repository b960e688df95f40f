// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/context.h"

#include <fmt/core.h>

namespace headrace::cuda {
Result<std::shared_ptr<const Context>> Context::of(const Driver& driver, CUdevice device) {
  // Allocated before the retain, so that no allocation can fail between the retain and its owner.
  const std::shared_ptr<Context> made(new Context(driver, device));
  // Without a lock, since the driver may fork() to load its kernel modules.
  const CUresult result = driver.cuDevicePrimaryCtxRetain(&made->handle_, device);
  if (result != CUDA_SUCCESS) {
    made->handle_ = nullptr;
    return fail_cuda(driver, result, fmt::format("cannot use GPU {}", device));
  }
  return made;
}

bool Context::made(const Driver& driver, CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return driver.cuDevicePrimaryCtxGetState != nullptr &&
         driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

Context::~Context() {
  if (handle_ != nullptr && here()) driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

bool enable_peer_access(const Context& one, const Context& other) {
  const auto enable = [](const Context& from, const Context& to) {
    const Driver& driver = from.driver();
    int can = 0;
    if (driver.cuDeviceCanAccessPeer(&can, from.device(), to.device()) != CUDA_SUCCESS)
      return false;
    if (can == 0) return false;
    const CurrentContext current(from);
    if (current.result() != CUDA_SUCCESS) return false;
    const CUresult result = driver.cuCtxEnablePeerAccess(to.handle(), 0);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  };
  const bool there = enable(one, other);
  return enable(other, one) && there;
}

}  // namespace headrace::cuda
