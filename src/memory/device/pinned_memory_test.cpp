// SPDX-License-Identifier: Apache-2.0
#include "memory/device/pinned_memory.h"

#include <gtest/gtest.h>

#include "headrace/buffer.h"
#include "tests/support/child.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

Placement pinned_on(NodeId node) {
  Placement placement = Placement::on(node);
  placement.pages = PageSize::base;
  placement.touch = false;  // pinning touches
  placement.pin = true;
  return placement;
}

bool is_pinned(const std::byte* at) {
  const cuda::Driver& driver = **cuda::driver();
  const auto context = *cuda::Context::of(driver, 0);
  const cuda::CurrentContext current(*context);
  unsigned type = 0;
  return driver.cuPointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      reinterpret_cast<std::uintptr_t>(at)) == cuda::CUDA_SUCCESS &&
         type == cuda::CU_MEMORYTYPE_HOST;
}

TEST(PinnedMemory, IsTouchedOnItsNodeAndPinned) {
  const test::FakeGpu gpu;
  const std::byte* at = nullptr;
  {
    const auto buffer = allocate(gpu.machine, 2_MiB + 1_B, pinned_on(test::kDram));
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_TRUE((*buffer)->pinned());
    at = (*buffer)->memory();
    EXPECT_TRUE(is_pinned(at) && is_pinned(at + (2 << 20)));
    const auto residency = where((*buffer)->bytes());
    ASSERT_TRUE(residency) << residency.error().message;
    EXPECT_EQ(residency->absent, 0U);
    EXPECT_EQ(residency->pages.size(), 1U);
    EXPECT_EQ(relocate(gpu.machine, **buffer, Placement::on(test::kDram)).error().code,
              ErrorCode::unsupported);
  }
  EXPECT_FALSE(is_pinned(at)) << "it is given back";
}

TEST(PinnedMemory, GraphCaptureInAnotherThread_IsPinnedAndUnpinned) {
  const test::FakeGpu gpu("capturing=1");
  const std::byte* at = nullptr;
  {
    const auto buffer = allocate(gpu.machine, 2_MiB, pinned_on(test::kDram));
    ASSERT_TRUE(buffer) << buffer.error().message;
    at = (*buffer)->memory();
    EXPECT_TRUE(is_pinned(at));
  }
  EXPECT_FALSE(is_pinned(at)) << "it is given back";
}

TEST(PinnedMemory, IsRegisteredInPartsAndRolledBack) {
  const test::FakeGpu gpu("register_limit=1048576");
  auto buffer = allocate(gpu.machine, 4_MiB, Placement::on(test::kDram)).value();
  const auto whole = PinnedMemory::pin(buffer->bytes(), test::kDram);
  ASSERT_FALSE(whole) << "the driver takes less at once";
  EXPECT_NE(whole.error().message.find("cannot pin 4 MiB (the driver refused after 0 B)"),
            std::string::npos)
      << whole.error().message;
  const auto parts = PinnedMemory::pin(buffer->bytes(), test::kDram, 512_KiB);
  ASSERT_TRUE(parts) << parts.error().message;
  for (std::size_t at = 0; at < buffer->bytes().size(); at += 1 << 18) {
    EXPECT_TRUE(is_pinned(buffer->memory() + at));
  }
}

TEST(PinnedMemory, MakesNoSecondContext) {
  const test::FakeGpu gpu("devices=2");
  const cuda::Driver& driver = **cuda::driver();
  const auto second = cuda::Context::of(driver, 1).value();
  const auto buffer = allocate(gpu.machine, 1_MiB, pinned_on(test::kDram));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_FALSE(cuda::Context::made(driver, 0));
}

TEST(PinnedMemory, IsAllOrNothing) {
  const test::FakeGpu gpu;
  auto buffer = allocate(gpu.machine, 4_MiB, Placement::on(test::kDram)).value();
  const auto third = PinnedMemory::pin(buffer->bytes().subspan(2 << 20, 1 << 20), test::kDram);
  ASSERT_TRUE(third);
  // The third part is registered already.
  const auto all = PinnedMemory::pin(buffer->bytes(), test::kDram, 1_MiB);
  ASSERT_FALSE(all);
  EXPECT_NE(all.error().message.find("refused after 2 MiB"), std::string::npos)
      << all.error().message;
  EXPECT_FALSE(is_pinned(buffer->memory())) << "rolled back";
  EXPECT_FALSE(is_pinned(buffer->memory() + (1 << 20)));
  EXPECT_TRUE(is_pinned(buffer->memory() + (2 << 20))) << "another's";
}

TEST(PinnedMemory, NoDriver_PinnedMemoryIsRefused) {
  const test::FakeGpu gpu;
  const ScopedVariable none("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
  const auto buffer = allocate(gpu.machine, 1_MiB, pinned_on(test::kDram));
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::absent);
}

TEST(PinnedMemory, IsCopiedToAChildUnpinned) {
  const test::FakeGpu gpu;
  auto buffer = allocate(gpu.machine, 1_MiB, pinned_on(test::kDram)).value();
  buffer->bytes()[0] = std::byte{5};
  EXPECT_EQ(test::status_of_child([&] {
              const bool same = buffer->bytes()[0] == std::byte{5};
              buffer.reset();
              return same;
            }),
            0);
  EXPECT_TRUE(is_pinned(buffer->memory()));
}

}  // namespace
}  // namespace headrace
