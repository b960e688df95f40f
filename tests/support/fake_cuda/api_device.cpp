// SPDX-License-Identifier: Apache-2.0
// The functions of the driver, its errors, devices and contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

template <class Body>
CUresult on_device(CUdevice ordinal, Body body) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  Device* const device = driver().device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : body(*device);
}

// Like the driver: cut to the size, always terminated.
CUresult copy_text(const std::string& text, char* to, int size) {
  if (to == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(to, static_cast<std::size_t>(size), "%s", text.c_str());
  return CUDA_SUCCESS;
}

}  // namespace

HEADRACE_FAKE_EXPORT CUresult cuInit(unsigned int flags) {
  return flags == 0 ? initialise() : CUDA_ERROR_INVALID_VALUE;
}

HEADRACE_FAKE_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = driver_version();
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = nullptr;
#define HEADRACE_FAKE_NAME(result, number) \
  if (error == number) *name = #result;
  HEADRACE_CUDA_RESULTS(HEADRACE_FAKE_NAME)
#undef HEADRACE_FAKE_NAME
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* name = nullptr;
  const CUresult result = cuGetErrorName(error, &name);
  *text = nullptr;
  if (result != CUDA_SUCCESS) return result;
  // Each text is the name without its prefix.
  *text = error == CUDA_SUCCESS ? "no error" : name + std::strlen("CUDA_ERROR_");
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceGetCount(int* count) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(driver().devices.size());
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_device(ordinal, [&](Device& found) {
    *device = found.ordinal();
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return on_device(device, [&](Device&) { return copy_text("Headrace fake GPU", name, size); });
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_device(device, [&](Device&) {
    *bytes = driver().settings.memory;
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what,
                                                   CUdevice device) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_device(device, [&](Device& found) {
    const auto known = found.attribute(what);
    *value = known.value_or(*value);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  return on_device(device, [&](Device& found) {
    char text[32];
    const int bus = driver().settings.mig != 0 ? 1 : found.ordinal() + 1;
    std::snprintf(text, sizeof text, "0000:%02x:00.0", bus);
    return copy_text(text, id, size);
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_device(device, [&](Device&) {
    return on_device(peer, [&](Device&) {
      *can = device != peer;
      return CUDA_SUCCESS;
    });
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_device(device, [&](Device& found) {
    *context = found.retain();
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags,
                                                         int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_device(device, [&](Device& found) {
    *flags = 0;
    *active = found.retained();
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return on_device(device, [](Device& found) {
    return found.release() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  auto found = driver().contexts.find(context);
  if (found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(std::move(found));
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back()->handle();
  stack.pop_back();
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = context_stack();
  *context = stack.empty() ? nullptr : stack.back()->handle();
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return in_context([&](Context& current) -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto other = driver().contexts.find(peer);
    if (other == nullptr || other.get() == &current) return CUDA_ERROR_INVALID_CONTEXT;
    return current.enable_peer(other->device().ordinal()) ? CUDA_SUCCESS
                                                          : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

}  // namespace headrace::cuda::fake
