// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/buffer_pool.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "memory/memory.h"
#include "tests/support/child.h"

namespace headrace::instruments {
namespace {

class ArenasTest : public testing::Test {
 protected:
  Machine machine_ = Machine::discover().value();
  MemoryKey base_{machine_.nodes.front().id, PageSize::base};
  MemoryKey huge_{machine_.nodes.front().id, PageSize::transparent};
  BufferPool buffers_{machine_};
};

TEST_F(ArenasTest, AreTheSameUntilClearedAndTouched) {
  const auto one = buffers_.get(base_, 0, 1_MiB);
  ASSERT_TRUE(one.has_value()) << one.error().message;
  EXPECT_EQ(one->size(), (1_MiB).value);
  EXPECT_EQ(where(*one)->absent, 0u);
  EXPECT_EQ(buffers_.get(base_, 0, 64_KiB)->data(), one->data());
  EXPECT_NE(buffers_.get(base_, 1, 1_MiB)->data(), one->data());
  EXPECT_NE(buffers_.get(huge_, 0, 1_MiB)->data(), one->data());
  EXPECT_TRUE(buffers_.check_residency().has_value());
  buffers_.clear();
  EXPECT_TRUE(buffers_.check_residency().has_value()) << "of nothing";
}

TEST_F(ArenasTest, PagesThatAreGoneAreNoticed) {
  const auto memory = buffers_.get(base_, 0, 1_MiB);
  ASSERT_TRUE(memory.has_value());
  ASSERT_EQ(madvise(memory->data(), memory->size(), MADV_DONTNEED), 0);
  const Status checked = buffers_.check_residency();
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().message.find("swapped out"), std::string::npos);
}

TEST(Fitting, LeavesRoomOnSmallNodes) {
  Node node{.id = NodeId{1}, .kind = NodeKind::hbm};
  EXPECT_EQ(fitting(node, 256_MiB), 256_MiB) << "nobody knows how large it is";
  node.capacity = 64_GiB;
  EXPECT_EQ(fitting(node, 256_MiB), 256_MiB);
  node.capacity = Bytes{(128_MiB).value - 5};
  EXPECT_EQ(fitting(node, 256_MiB), 6_MiB);
  node.capacity = 1_MiB;
  EXPECT_EQ(fitting(node, 256_MiB), 64_KiB);
}

bool child_lacks(std::span<const std::byte> memory) {
  return test::status_of_child([&] {
           std::vector<unsigned char> present(memory.size() / base_page().value);
           // mincore() takes a non-const pointer, although it only reads.
           void* start = const_cast<std::byte*>(memory.data());
           return mincore(start, memory.size(), present.data()) != 0 && errno == ENOMEM;
         }) == 0;
}

TEST_F(ArenasTest, AChildDoesNotHaveThem) {
  const auto own = allocate(machine_, 1_MiB, Placement::on(base_.node));
  ASSERT_TRUE(own.has_value()) << own.error().message;
  ASSERT_EQ(madvise((*own)->bytes().data(), (*own)->bytes().size(), MADV_DONTFORK), 0);
  if (!child_lacks((*own)->bytes())) {
    GTEST_SKIP() << "MADV_DONTFORK does nothing here, as in QEMU's user mode";
  }
  const auto memory = buffers_.get(base_, 0, 1_MiB);
  ASSERT_TRUE(memory.has_value());
  EXPECT_TRUE(child_lacks(*memory));
}

TEST_F(ArenasTest, SayHowMuchIsHuge) {
  const auto small = buffers_.get(base_, 0, 4_MiB);
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(BufferPool::huge_part(*small), 0);
  const auto large = buffers_.get(huge_, 0, 64_MiB);
  ASSERT_TRUE(large.has_value());
  const double part = BufferPool::huge_part(*large);
  EXPECT_GE(part, 0);
  EXPECT_LE(part, 1);
}

// A stream can be read only once.
TEST(HugeParts, OnePassOverSmapsIsForAllOfThem) {
  const std::vector<std::byte> memory(3 << 20);
  const auto at = [&](std::size_t mib) {
    return fmt::format("{:x}", reinterpret_cast<std::uintptr_t>(memory.data()) + (mib << 20));
  };
  const std::span<const std::byte> all = memory;
  std::istringstream smaps("1000-2000 r-xp 00000000 00:00 0 /bin/true\nAnonHugePages: 4 kB\n" +
                           at(0) + "-" + at(2) + " rw-p 00000000 00:00 0\nRss: 2048 kB\n" +
                           "AnonHugePages: 1024 kB\nPrivate_Hugetlb: 0 kB\n" +  //
                           at(2) + "-" + at(3) + " rw-p 00000000 00:00 0\nRss: 1024 kB\n" +
                           "AnonHugePages: 0 kB\nPrivate_Hugetlb: 1024 kB\n");
  const std::string text = smaps.str();
  const auto parts = BufferPool::huge_parts(
      {all.first(1 << 20), all.subspan(1 << 20, 1 << 20), all.subspan(2 << 20), all}, smaps);
  EXPECT_EQ(parts, (std::vector<double>{0.5, 0.5, 1, 2.0 / 3}));
  std::istringstream again(text);
  EXPECT_DOUBLE_EQ(BufferPool::huge_part({all.first(2 << 20), all.subspan(2 << 20)}, again),
                   2.0 / 3)
      << "weighted by size";
}

// A buffer's huge pages decide the rows of its user, and no other rows.
TEST_F(ArenasTest, OneSmallPageIsNotAllHuge) {
  EXPECT_EQ(buffers_.huge_part_in_use(), std::nullopt);
  ASSERT_TRUE(buffers_.get(base_, 0, 4_MiB).has_value());
  EXPECT_EQ(buffers_.huge_part_in_use(), std::nullopt) << "asked for base pages";
  // Not a multiple of huge pages, and less than one.
  ASSERT_TRUE(buffers_.get(huge_, 0, 3_MiB).has_value());
  const auto memory = buffers_.get(huge_, 1, 64_KiB);
  ASSERT_TRUE(memory.has_value());
  if (huge_page() > 2_MiB || !is_all_huge(*buffers_.huge_part_in_use())) {
    GTEST_SKIP() << "no huge page is free in one piece, or they are off";
  }
  EXPECT_EQ(buffers_.huge_part_in_use(), 1);
  // The kernel splits the huge page to give a part of it other properties.
  ASSERT_EQ(madvise(memory->data(), base_page().value, MADV_DONTNEED), 0);
  EXPECT_FALSE(is_all_huge(*buffers_.huge_part_in_use()));
  buffers_.forget_uses();
  EXPECT_EQ(buffers_.huge_part_in_use(), std::nullopt);
  ASSERT_TRUE(buffers_.get(huge_, 0, 3_MiB).has_value());
  EXPECT_EQ(buffers_.huge_part_in_use(), 1);
}

TEST_F(ArenasTest, FailedAllocation_KeepsOtherBuffers) {
  ASSERT_TRUE(buffers_.get(base_, 0, 1_MiB).has_value());
  const auto too_much = buffers_.get(base_, 1, Bytes{1} * (std::uint64_t{1} << 45));
  ASSERT_FALSE(too_much.has_value());
  EXPECT_EQ(too_much.error().code, ErrorCode::exhausted);
  EXPECT_TRUE(buffers_.check_residency().has_value());
  EXPECT_FALSE(buffers_.get({NodeId{77}, PageSize::base}, 0, 1_MiB).has_value());
}

}  // namespace
}  // namespace headrace::instruments
