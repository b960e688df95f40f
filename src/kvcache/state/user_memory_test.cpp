// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/user_memory.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::kvcache {
namespace {

const Geometry kGeometry{.model = "m", .layers = 3, .kv_heads = 1, .head_dim = 8};

struct KvUserMemory : testing::Test {
  std::vector<std::byte> bytes = std::vector<std::byte>(4 * kGeometry.block().value);
  MemoryRange memory{bytes, NodeId{0}};
};

TEST_F(KvUserMemory, LayersOfABlockAreOneFragmentPageFirst) {
  std::vector<Fragment> parts;
  fragments(kGeometry, whole(memory), Layout::page_first, 2, 1, 2, parts);
  ASSERT_EQ(parts.size(), 1u);
  const std::uint64_t fragment = kGeometry.fragment().value;
  EXPECT_EQ(parts[0].user.offset, 2 * kGeometry.block().value + fragment);
  EXPECT_EQ(parts[0].in_block, fragment);
  EXPECT_EQ(parts[0].bytes, kGeometry.fragment() * 2);
}

TEST_F(KvUserMemory, LayersOfABlockLieApartLayerFirst) {
  std::vector<Fragment> parts;
  fragments(kGeometry, whole(memory), Layout::layer_first, 3, 0, 3, parts);
  ASSERT_EQ(parts.size(), 3u);
  const std::uint64_t fragment = kGeometry.fragment().value;
  for (std::uint64_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(parts[layer].user.offset, (layer * 4 + 3) * fragment);
    EXPECT_EQ(parts[layer].in_block, layer * fragment);
  }
}

TEST_F(KvUserMemory, RefusesPositionsThatDoNotFit) {
  const Extent all = whole(memory);
  EXPECT_TRUE(check_user(kGeometry, all, 4, {}).has_value());
  EXPECT_FALSE(check_user(kGeometry, all, 5, {}).has_value());
  EXPECT_TRUE(check_user(kGeometry, all, 1, std::array<std::size_t, 1>{3}).has_value());
  EXPECT_FALSE(check_user(kGeometry, all, 1, std::array<std::size_t, 1>{4}).has_value());
  EXPECT_FALSE(check_user(kGeometry, all, 2, std::array<std::size_t, 1>{0}).has_value());
  EXPECT_FALSE(check_user(kGeometry, all.part(0, Bytes{7}), 0, {}).has_value());
}

}  // namespace
}  // namespace headrace::kvcache
