// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "tier/page/slow_memory.h"

namespace headrace {
namespace {

// Accepts or refuses as the test sets it; its one page is in swap where it says so.
class OnePageKernel final : public Kernel {
 public:
  int madvise(std::uintptr_t /*begin*/, std::size_t /*bytes*/, int advice) override {
    if (advice == MADV_PAGEOUT) return pageout;
    if (advice != MADV_WILLNEED && comes_in) out = false;
    return 0;
  }
  std::int64_t pread(int /*descriptor*/, void* bytes, std::size_t count,
                     std::int64_t /*at*/) override {
    *static_cast<std::uint64_t*>(bytes) = std::uint64_t{1} << (out ? 62 : 63);
    return static_cast<std::int64_t>(count) - missing;
  }
  int pageout = 0;
  bool out = true;  // in swap after page-out
  bool comes_in = true;
  std::int64_t missing = 0;  // missing bytes of pagemap
};

void expect_no_swap(OnePageKernel kernel, ErrorCode code, const char* word) {
  const auto swap = open_swap(kernel);
  ASSERT_FALSE(swap);
  EXPECT_EQ(swap.error().code, code);
  EXPECT_NE(swap.error().message.find(word), std::string::npos) << swap.error().message;
}

TEST(TierSwap, IsTriedWhenItIsOpened) {
  OnePageKernel kernel;
  EXPECT_TRUE(open_swap(kernel));
  EXPECT_FALSE(kernel.out) << "the page came back";
}

TEST(TierSwap, SaysWhatIsMissing) {
  OnePageKernel kernel;
  kernel.comes_in = false;
  expect_no_swap(kernel, ErrorCode::unsupported, "stayed out: the kernel is older than 5.14");
  kernel.out = false;
  expect_no_swap(kernel, ErrorCode::unsupported, "swap");
  kernel.pageout = -EINVAL;
  expect_no_swap(kernel, ErrorCode::unsupported, "MADV_PAGEOUT");
  kernel.missing = 8;
  expect_no_swap(kernel, ErrorCode::io, "pagemap ended");
}

}  // namespace
}  // namespace headrace
