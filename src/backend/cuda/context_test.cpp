// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/context.h"

#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_library.h"

namespace headrace::cuda {
namespace {

CUcontext current(const Driver& driver) {
  CUcontext context = nullptr;
  driver.cuCtxGetCurrent(&context);
  return context;
}

TEST(CudaContext, IsCurrentForAScope) {
  const FakeCudaLibrary library("devices=2");
  const Driver& used = **driver();
  const auto first = Context::of(used, 0);
  const auto second = Context::of(used, 1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(current(used), nullptr);
  {
    const CurrentContext outer(**first);
    EXPECT_EQ(outer.result(), CUDA_SUCCESS);
    {
      const CurrentContext inner(**second);
      EXPECT_EQ(current(used), (*second)->handle());
    }
    EXPECT_EQ(current(used), (*first)->handle());
  }
  EXPECT_EQ(current(used), nullptr);
}

TEST(CudaContext, IsThePrimaryOneOfAGpuThatIsThere) {
  const FakeCudaLibrary library;
  const Driver& used = **driver();
  EXPECT_FALSE(Context::made(used, 0));
  const auto one = Context::of(used, 0);
  const auto other = Context::of(used, 0);
  ASSERT_TRUE(one && other);
  EXPECT_TRUE(Context::made(used, 0));
  EXPECT_EQ((*one)->handle(), (*other)->handle());
  EXPECT_EQ(Context::of(used, 7).error().code, ErrorCode::absent);
}

TEST(CudaContext, OfTwoGpusReachesTheOthersMemoryOnceEnabled) {
  const FakeCudaLibrary library("devices=2");
  const auto one = *Context::of(**driver(), 0);
  const auto other = *Context::of(**driver(), 1);
  EXPECT_TRUE(enable_peer_access(*one, *other));
  EXPECT_TRUE(enable_peer_access(*other, *one)) << "already enabled is as good";
  EXPECT_FALSE(enable_peer_access(*one, *one));
}

}  // namespace
}  // namespace headrace::cuda
