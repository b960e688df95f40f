// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/driver.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

// Checks the functions that a driver of this version has, and those that it lacks.
void expect_symbols(const Fake& cuda, int version) {
#define HEADRACE_FAKE_EXPECT(need, since, name, parameters) \
  EXPECT_EQ(cuda.name != nullptr, since <= version) << #name;
  HEADRACE_CUDA_SYMBOLS(HEADRACE_FAKE_EXPECT)
#undef HEADRACE_FAKE_EXPECT
  int told = 0;
  EXPECT_EQ(cuda.cuDriverGetVersion(&told), CUDA_SUCCESS);
  EXPECT_EQ(told, version);
}

TEST(FakeDriver, EachVersionHasTheSymbolsOfItsTime) {
  expect_symbols(Fake(), 13000);
  expect_symbols(Fake("", "12.8"), 12080);
  expect_symbols(Fake("", "12.2"), 12020);
  expect_symbols(Fake("", "11.0"), 11000);
  expect_symbols(Fake("", "10.2"), 10020);
}

TEST(FakeDriver, TheNameTellsThatItIsFake) {
  const Fake cuda;
  char name[64];
  ASSERT_EQ(cuda.cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "Headrace fake GPU");
}

TEST(FakeDriver, WrongSettingsAreRefused) {
  EXPECT_EQ(Fake("devices=two").started, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Fake("devices=0").started, CUDA_ERROR_NO_DEVICE);
}

TEST(FakeDriver, CallsInTheWrongStateAreErrors) {
  const FakeCudaLibrary library;
  const Api cuda(library.path());
  int count = 0;
  EXPECT_EQ(cuda.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  ASSERT_EQ(cuda.cuInit(0), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 64), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda.cuCtxPushCurrent_v2(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  CUdevice device = 0;
  EXPECT_EQ(cuda.cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
}

TEST(FakeDriver, AChildAfterForkHasNoDriver) {
  const FakeContext cuda;
  const pid_t child = fork();
  if (child == 0) {
    CUcontext current = nullptr;
    _exit(cuda.cuCtxGetCurrent(&current) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace::cuda::fake
