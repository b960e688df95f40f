// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels.h"

#include <gtest/gtest.h>

#include "backend/cuda/context.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace headrace::cuda {
namespace {

TEST(CudaKernels, IsThereOrSaysWhatTheCompilerSaid) {
  {
    const FakeCudaLibrary library;
    const auto context = *Context::of(**driver(), 0);
    const CurrentContext current(*context);
    const auto module = load_kernels(context->driver());
    ASSERT_TRUE(module.has_value()) << module.error().message;
    EXPECT_EQ(context->driver().cuModuleUnload(*module), CUDA_SUCCESS);
  }
  const FakeCudaLibrary old("compute=60");
  const auto context = *Context::of(**driver(), 0);
  const CurrentContext current(*context);
  const auto refused = load_kernels(context->driver());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("for a newer GPU"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace headrace::cuda
