// SPDX-License-Identifier: Apache-2.0
#include "place/speed.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(SpeedTest, OfTheInitiatorElseTheBestOfAll) {
  const Node node{
      .id = NodeId{8},
      .kind = NodeKind::hbm,
      .access = {
          {.initiator = NodeId{0},
           .read_latency = Nanoseconds{200},
           .read_bandwidth = BytesPerSecond{50e9}},
          {.initiator = NodeId{1},
           .read_latency = Nanoseconds{100},
           .read_bandwidth = BytesPerSecond{90e9},
           .measured = true},
          {.initiator = NodeId{2}, .read_bandwidth = BytesPerSecond{70e9}, .measured = true}}};
  EXPECT_EQ(by_bandwidth(NodeId{2}, true)(node), 70e9);
  EXPECT_EQ(by_bandwidth(NodeId{0}, true)(node), 90e9);
  EXPECT_EQ(by_bandwidth(std::nullopt, false)(node), 50e9);
  EXPECT_NEAR(*by_latency(NodeId{1}, true)(node), 1e7, 1);
  EXPECT_NEAR(*by_latency(NodeId{0}, false)(node), 5e6, 1);
  const Node unknown{.id = NodeId{1}, .kind = NodeKind::dram};
  EXPECT_EQ(by_bandwidth(NodeId{0}, true)(unknown), std::nullopt);
}

}  // namespace
}  // namespace headrace
