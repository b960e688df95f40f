// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/user_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "kvcache/kvcache_testing.h"

namespace headrace::kvcache {
namespace {

const Geometry kGeometry{.model = "m", .layers = 3, .kv_heads = 1, .head_dim = 8};

struct KvUserMemory : testing::Test {
  std::vector<std::byte> bytes = std::vector<std::byte>(4 * kGeometry.block().value);
  MemoryRange memory{bytes, NodeId{0}};
};

TEST_F(KvUserMemory, RefusesWhatDoesNotFit) {
  std::vector<std::byte> other_bytes(kGeometry.block().value);
  const MemoryRange other(other_bytes, NodeId{1});
  const Extent all = whole(memory);
  const Extent block = all.part(0, kGeometry.block());
  const Extent half = all.part(0, kGeometry.fragment());
  const auto check = [](std::vector<Extent> user, std::size_t blocks,
                        std::vector<std::size_t> positions = {},
                        Layout layout = Layout::page_first) {
    return check_user(kGeometry, user, layout, blocks, positions).has_value();
  };
  EXPECT_TRUE(check({all}, 4));
  EXPECT_FALSE(check({all}, 5));
  EXPECT_TRUE(check({all}, 1, {3}));
  EXPECT_FALSE(check({all}, 1, {4}));
  EXPECT_FALSE(check({all}, 2, {0}));
  EXPECT_FALSE(check({half}, 0));
  EXPECT_TRUE(check({}, 0));
  EXPECT_FALSE(check({}, 1));
  EXPECT_TRUE(check({block, whole(other)}, 2));
  EXPECT_FALSE(check({block, whole(other)}, 3));
  EXPECT_FALSE(check({block, half}, 2));
  EXPECT_FALSE(check({block, {&other, 8, kGeometry.block()}}, 2));
  EXPECT_FALSE(check({block, whole(other)}, 2, {0, 1}));
  EXPECT_FALSE(check({block, whole(other)}, 2, {}, Layout::layer_first));
}

TEST_F(KvUserMemory, BlocksLieAtPositionsOrInTheirExtents) {
  const std::array each{whole(memory).part(0, Bytes{8}), whole(memory).part(8, Bytes{8})};
  EXPECT_EQ(user_block(each, {}, 1).extent.offset, 8u);
  EXPECT_EQ(user_block(each, {}, 1).position, 0u);
  const std::array<std::size_t, 2> positions{5, 7};
  EXPECT_EQ(user_block(std::span(each).first(1), positions, 1).position, 7u);
  EXPECT_EQ(user_block(std::span(each).first(1), {}, 1).position, 1u);
}

// A file has no address.
TEST_F(KvUserMemory, ExtentsOfAFile_OverlapByOffset) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "file";
  std::ofstream(path) << std::string(8192, ' ');
  const auto file = File::open(test::small_machine(), path, {.direct = false});
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const Extent all = whole(**file);
  EXPECT_FALSE(any_overlap(std::array{all.part(4096, Bytes{4096}), all.part(0, Bytes{4096})}));
  EXPECT_TRUE(any_overlap(std::array{all.part(2048, Bytes{4096}), all.part(0, Bytes{4096})}));
}

}  // namespace
}  // namespace headrace::kvcache
