// SPDX-License-Identifier: Apache-2.0
#include "memory/mapped_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace headrace {
namespace {

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

}  // namespace
}  // namespace headrace
