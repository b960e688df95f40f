// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gather.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/cuda/cuda.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace headrace::cuda {
namespace {

class GatherTest : public testing::Test {
 protected:
  GatherTest() {
    EXPECT_EQ(used_.cuMemHostAlloc(&memory_, 2 * kBytes, 0), CUDA_SUCCESS);
    std::iota(from(), from() + kBytes, 1);
    for (std::size_t i = 0; i < 300; ++i) {
      copies_.push_back(
          {.to = address(to() + 16 * i), .from = address(from() + 32 * i), .bytes = 16});
    }
  }
  ~GatherTest() override {
    kernel_.reset();
    used_.cuMemFreeHost(memory_);
  }
  static constexpr std::size_t kBytes = 300 * 32;
  static CUdeviceptr address(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }
  unsigned char* from() { return static_cast<unsigned char*>(memory_); }
  unsigned char* to() { return from() + kBytes; }
  // The number of copies that arrived, counted from the first one.
  std::size_t arrived() {
    EXPECT_EQ(used_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    std::size_t i = 0;
    while (i < 300 && std::equal(to() + 16 * i, to() + 16 * i + 16, from() + 32 * i)) ++i;
    return i;
  }

  FakeCudaLibrary library_{"", ""};
  const Driver& used_ = **driver();
  std::shared_ptr<const Context> context_ = *Context::of(used_, 0);
  CurrentContext current_{*context_};
  std::unique_ptr<GatherKernel> kernel_ = *GatherKernel::load(*context_);
  void* memory_ = nullptr;
  std::vector<ListedCopy> copies_;
};

TEST_F(GatherTest, AllCopiesArriveByLaunchesOf128) {
  std::size_t put = 0;
  EXPECT_EQ(gather(used_, kernel_->function(), copies_, nullptr, put), CUDA_SUCCESS);
  EXPECT_EQ(put, 300U);
  EXPECT_EQ(arrived(), 300U);
  EXPECT_EQ(gather(used_, kernel_->function(), {}, nullptr, put), CUDA_SUCCESS);
  EXPECT_EQ(put, 0U);
}

const Driver* real = nullptr;
unsigned launches = 0;
CUresult only_first(CUfunction kernel, unsigned grid, unsigned, unsigned, unsigned block, unsigned,
                    unsigned, unsigned, CUstream stream, void** parameters, void**) {
  if (launches++ > 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return real->cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
}

TEST_F(GatherTest, SaysHowManyAreInTheStreamWhereALaunchIsRefused) {
  Driver scripted = used_;
  real = &used_;
  launches = 0;
  scripted.cuLaunchKernel = only_first;
  std::size_t put = 0;
  EXPECT_EQ(gather(scripted, kernel_->function(), copies_, nullptr, put),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(put, kMostGathered);
  EXPECT_EQ(arrived(), kMostGathered);
}

TEST_F(GatherTest, AListIsOneLaunchHoweverLong) {
  GatherList list(*context_);
  EXPECT_FALSE(list.launch(*kernel_, {}, nullptr));
  ASSERT_TRUE(list.launch(*kernel_, copies_, nullptr));
  EXPECT_EQ(arrived(), 300U);
  const std::vector<ListedCopy> many(9000, copies_[0]);
  EXPECT_FALSE(list.launch(*kernel_, many, nullptr)) << "more than it holds";
  const ListedCopy large{.to = address(to()), .from = address(from()), .bytes = kBytes};
  ASSERT_TRUE(list.launch(*kernel_, {&large, 1}, nullptr)) << "several entries";
  EXPECT_EQ(used_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(std::equal(from(), from() + kBytes, to()));
}

TEST(GatherKernelTest, IsForMultiplesOf16Bytes_AndLoadsWhileOthersCapture) {
  EXPECT_TRUE(fits_gather({.to = 32, .from = 16, .bytes = 48}));
  EXPECT_FALSE(fits_gather({.to = 8, .from = 16, .bytes = 48}));
  EXPECT_FALSE(fits_gather({.to = 32, .from = 17, .bytes = 48}));
  EXPECT_FALSE(fits_gather({.to = 32, .from = 16, .bytes = 40}));
  const FakeCudaLibrary library("capturing=1");
  const auto context = *Context::of(**driver(), 0);
  const CurrentContext current(*context);
  EXPECT_TRUE(GatherKernel::load(*context));
}

}  // namespace
}  // namespace headrace::cuda
