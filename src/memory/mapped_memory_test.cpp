// SPDX-License-Identifier: Apache-2.0
#include "memory/mapped_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <fstream>

namespace headrace {
namespace {

// Total bytes of addresses that this process has mapped.
Bytes mapped_now() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return 4_KiB * pages;
}

TEST(MappedMemoryTest, IsAlignedAndNoLongerThanAsked) {
  for (const Bytes align : {1_B, 4_KiB, 2_MiB, 8_GiB}) {
    const Bytes before = mapped_now();
    auto mapping = MappedMemory::make(3_MiB, align, 4_KiB, PROT_READ | PROT_WRITE);
    ASSERT_TRUE(mapping);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping->memory()) % align.value, 0U);
    EXPECT_EQ(mapping->length(), 3_MiB);
    EXPECT_LT(mapped_now() - before, 4_MiB);
    mapping->memory()[0] = mapping->memory()[(3_MiB).value - 1] = std::byte{1};
  }
}

TEST(MappedMemoryTest, Destructor_UnmapsUnlessReleased) {
  std::byte* gone = nullptr;
  std::byte* kept = nullptr;
  {
    auto a = MappedMemory::make(64_KiB, 2_MiB, 4_KiB, PROT_READ);
    auto b = MappedMemory::make(64_KiB, 2_MiB, 4_KiB, PROT_READ);
    ASSERT_TRUE(a && b);
    gone = a->memory();
    kept = b->release();
  }
  unsigned char in_core[16];
  EXPECT_EQ(::mincore(gone, 64 << 10, in_core), -1);
  EXPECT_EQ(::mincore(kept, 64 << 10, in_core), 0);
  unmap(kept, 64 << 10);
  EXPECT_EQ(::mincore(kept, 64 << 10, in_core), -1);
}

TEST(MappedMemoryTest, SaysWhyTheKernelRefuses) {
  const auto none = MappedMemory::make(Bytes{std::uint64_t{1} << 60}, 4_KiB, 4_KiB, PROT_NONE);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), ENOMEM);
}

}  // namespace
}  // namespace headrace
