// SPDX-License-Identifier: Apache-2.0
// The functions of a fake driver, found by dlsym, as a program finds NVIDIA's.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "support/fake_cuda/fake_library.h"

namespace headrace::cuda::fake {

// Every function of the table by its name; null if the driver lacks it.
struct Api {
#define HEADRACE_FAKE_MEMBER(need, since, name, parameters) CUresult(*name) parameters = nullptr;
  HEADRACE_CUDA_SYMBOLS(HEADRACE_FAKE_MEMBER)
#undef HEADRACE_FAKE_MEMBER

  explicit Api(const std::string& path) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    if (library == nullptr) return;
#define HEADRACE_FAKE_FIND(need, since, name, parameters) \
  name = reinterpret_cast<CUresult(*) parameters>(dlsym(library, #name));
    HEADRACE_CUDA_SYMBOLS(HEADRACE_FAKE_FIND)
#undef HEADRACE_FAKE_FIND
  }
};

// A fake driver on which cuInit has been called.
struct Fake : FakeCudaLibrary, Api {
  explicit Fake(const std::string& settings = "", const std::string& version = "")
      : FakeCudaLibrary(settings, version), Api(path()) {
    started = cuInit(0);
  }
  CUresult started = CUDA_SUCCESS;
};

// A fake driver with the primary context of device 0 current until the end of the scope.
struct FakeContext : Fake {
  explicit FakeContext(const std::string& settings = "") : Fake(settings) {
    EXPECT_EQ(started, CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
  }
  ~FakeContext() {
    EXPECT_EQ(cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  }

  CUdeviceptr device_memory(std::size_t size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, size), CUDA_SUCCESS);
    return address;
  }
  char* pinned(std::size_t size) {
    void* address = nullptr;
    EXPECT_EQ(cuMemHostAlloc(&address, size, 0), CUDA_SUCCESS);
    return static_cast<char*>(address);
  }
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream made = nullptr;
    EXPECT_EQ(cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent made = nullptr;
    EXPECT_EQ(cuEventCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }

  CUcontext context = nullptr;
};

}  // namespace headrace::cuda::fake
