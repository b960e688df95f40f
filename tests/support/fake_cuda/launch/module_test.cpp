// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/launch/module.h"

#include <gtest/gtest.h>

#include <array>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

// Returns the result of loading this PTX, and the JIT's log.
std::pair<CUresult, std::string> load(const FakeContext& cuda, const char* text) {
  std::array<char, 64> log{};
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  const CUresult result = cuda.cuModuleLoadDataEx(&module, text, 2, options.data(), values.data());
  return {result, log.data()};
}

TEST(FakeModules, PtxThatIsTooNewIsRefusedWithALog) {
  const FakeContext cuda("compute=70");
  EXPECT_EQ(load(cuda, ".version 6.0\n.target sm_70\n").first, CUDA_SUCCESS);
  const auto newer = load(cuda, ".version 9.5\n.target sm_70\n");
  EXPECT_EQ(newer.first, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(newer.second, "Unsupported .version 9.5");
  EXPECT_EQ(load(cuda, ".version 6.0\n.target sm_75\n").first, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(cuda, "no ptx").first, CUDA_ERROR_INVALID_PTX);
}

}  // namespace
}  // namespace headrace::cuda::fake
