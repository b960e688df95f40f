// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "headrace/buffer.h"
#include "memory/memory_testing.h"

namespace headrace {
namespace {

TEST(Where, WidensToWholePages) {
  const Machine machine = this_host();
  const auto buffer = allocate(machine, 64_KiB, on_first(machine));
  ASSERT_TRUE(buffer);
  const auto bytes = (*buffer)->bytes();
  EXPECT_EQ(where(bytes.subspan(0, 0)).value().total(), 0U);
  EXPECT_EQ(where(bytes.subspan(100, 1)).value().total(), 1U);
  EXPECT_EQ(where(bytes.subspan(page_size() - 1, 2)).value().total(), 2U);
  EXPECT_EQ(where(bytes.subspan(page_size(), page_size())).value().total(), 1U);
}

TEST(Where, CountsTheSharedPageOfZerosAsAbsent) {
  const Machine machine = this_host();
  Placement placement = on_first(machine);
  placement.touch = false;
  const auto buffer = allocate(machine, 64_KiB, placement);
  ASSERT_TRUE(buffer);
  const std::byte seen = *static_cast<volatile std::byte*>((*buffer)->memory());
  EXPECT_EQ(seen, std::byte{0});
  EXPECT_EQ(where((*buffer)->bytes()).value().absent, pages_in(64_KiB));
}

TEST(Where, RefusesMemoryThatIsNotThere) {
  void* memory = ::mmap(nullptr, 4 * page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::span range(static_cast<const std::byte*>(memory), 4 * page_size());
  ASSERT_EQ(::munmap(static_cast<std::byte*>(memory) + page_size(), page_size()), 0);
  const auto residency = where(range);
  ASSERT_FALSE(residency);
  EXPECT_EQ(residency.error().code, ErrorCode::invalid);
  ::munmap(memory, page_size());
  ::munmap(static_cast<std::byte*>(memory) + 2 * page_size(), 2 * page_size());
}

}  // namespace
}  // namespace headrace
