// SPDX-License-Identifier: Apache-2.0
#include "host/nodes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/folder.h"

namespace headrace {
namespace {

class NodesTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    root_.write("sys/devices/" + name, text);
  }
  HostFiles files() const { return HostFiles(root_.root()); }
  const test::TestFolder root_;
};

TEST_F(NodesTest, NodesAndTheirFacts_AreRead) {
  EXPECT_TRUE(kernel_nodes(files()).empty());
  put("system/node/node0/cpulist", "0-3");
  put("system/node/node0/distance", "10 21");
  put("system/node/node8/distance", "21");
  put("system/node/node8/access0/initiators/write_bandwidth", "25600");
  put("system/node/node0/access0/initiators/write_bandwidth", "0");
  put("system/node/node1000/cpulist", "");
  put("system/node/online", "0,8");
  EXPECT_EQ(kernel_nodes(files()), (std::vector{NodeId{0}, NodeId{8}}));
  EXPECT_EQ(cpus_of(files(), NodeId{0}), (CpuSet{0, 1, 2, 3}));
  EXPECT_TRUE(cpus_of(files(), NodeId{8}).empty());
  using Distances = std::map<std::pair<NodeId, NodeId>, unsigned>;
  EXPECT_EQ(node_distances(files()),
            (Distances{{{NodeId{0}, NodeId{0}}, 10}, {{NodeId{0}, NodeId{8}}, 21}}));
  EXPECT_EQ(write_bandwidth(files(), NodeId{8}), std::uint64_t{25} << 30);
  EXPECT_FALSE(write_bandwidth(files(), NodeId{0})) << "0 is unknown";
}

TEST_F(NodesTest, Tiers_AreInOrderAndWithoutEmptyOnes) {
  put("virtual/memory_tiering/memory_tier22/nodelist", "2-3");
  put("virtual/memory_tiering/memory_tier4/nodelist", "0");
  put("virtual/memory_tiering/memory_tier5/nodelist", "");
  const auto tiers = memory_tiers(files());
  ASSERT_EQ(tiers.size(), 2u);
  EXPECT_EQ(tiers[0].number, 4u);
  EXPECT_EQ(tiers[1].nodes, (std::vector{NodeId{2}, NodeId{3}}));
}

TEST_F(NodesTest, AddressesOfANode_AreJoinedBlocksThatAreOnline) {
  put("system/memory/block_size_bytes", "8000000");
  for (const unsigned block : {9, 10, 12, 13, 15}) {
    put("system/node/node1/memory" + std::to_string(block) + "/online", block == 13 ? "0" : "1");
  }
  constexpr std::uint64_t kBlock = 128 << 20;
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(
      addresses_of(files(), NodeId{1}),
      (Ranges{{9 * kBlock, 11 * kBlock}, {12 * kBlock, 13 * kBlock}, {15 * kBlock, 16 * kBlock}}));
}

}  // namespace
}  // namespace headrace
