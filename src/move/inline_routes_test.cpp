// SPDX-License-Identifier: Apache-2.0
#include "move/inline_routes.h"

#include <gtest/gtest.h>

#include "headrace/random.h"

namespace headrace {
namespace {

TEST(InlineRoutes, Lookup_ReturnsOnlyStoredRoutesThatFitTheirWord) {
  InlineRoutes routes;
  EXPECT_FALSE(routes.find(NodeId{0}, NodeId{0}, 0_B));
  EXPECT_FALSE(routes.find(NodeId{0}, NodeId{0}, 1_B));
  routes.remember(NodeId{0}, NodeId{0}, 1_B, EngineId{0});
  EXPECT_EQ(routes.find(NodeId{0}, NodeId{0}, 1_B), EngineId{0});
  for (const NodeId node : {NodeId{0xffff}, NodeId{1000}}) {
    routes.remember(node, NodeId{8}, Bytes{0xffffff}, EngineId{255});
    EXPECT_EQ(routes.find(node, NodeId{8}, Bytes{0xffffff}), EngineId{255});
    EXPECT_FALSE(routes.find(NodeId{8}, node, Bytes{0xffffff}));
  }
  routes.remember(NodeId{1 << 16}, NodeId{0}, 1_B, EngineId{1});
  EXPECT_FALSE(routes.find(NodeId{1 << 16}, NodeId{0}, 1_B));
  routes.remember(NodeId{1}, NodeId{0}, 16_MiB, EngineId{1});
  EXPECT_FALSE(routes.find(NodeId{1}, NodeId{0}, 16_MiB));
  routes.remember(NodeId{1}, NodeId{0}, 1_B, EngineId{256});
  EXPECT_FALSE(routes.find(NodeId{1}, NodeId{0}, 1_B));
}

TEST(InlineRoutes, Collision_ForgetsButNeverReturnsAWrongRoute) {
  InlineRoutes routes;
  Random random(1);
  const auto engine_of = [](std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    return EngineId{static_cast<std::uint32_t>((from * 31 + to * 7 + bytes) % 256)};
  };
  std::size_t found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto from = static_cast<std::uint32_t>(random.below(20));
    const auto to = static_cast<std::uint32_t>(random.below(20));
    const std::uint64_t bytes = 1 + random.below(4);
    const auto known = routes.find(NodeId{from}, NodeId{to}, Bytes{bytes});
    found += known.has_value();
    if (known) {
      ASSERT_EQ(*known, engine_of(from, to, bytes));
    }
    routes.remember(NodeId{from}, NodeId{to}, Bytes{bytes}, engine_of(from, to, bytes));
  }
  EXPECT_GT(found, 1000u);
}

}  // namespace
}  // namespace headrace
