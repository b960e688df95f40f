#include "measure/experiment.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

std::vector<std::uint32_t> ids(const std::vector<const Node*>& nodes) {
  std::vector<std::uint32_t> all;
  for (const Node* node : nodes) all.push_back(raw(node->id));
  return all;
}

TEST(Scope, WantsRowsByNumberWordAndKindOfNode) {
  const Machine machine = Machine::load("xeon-max").value();
  const Row row{.experiment = "bandwidth",
                .parameters = {{"cpu_node", std::uint64_t{0}},
                               {"memory_node", std::uint64_t{8}},
                               {"mix", "read"},
                               {"threads", std::uint64_t{8}}}};
  const auto wants = [&](std::map<std::string, ParameterValue> only) {
    return Scope{machine, std::move(only)}.wants(row);
  };
  EXPECT_TRUE(wants({}));
  EXPECT_TRUE(wants({{"mix", "read"}, {"memory_node", std::uint64_t{8}}}));
  EXPECT_TRUE(wants({{"memory_node", "hbm"}, {"cpu_node", "dram"}}));
  EXPECT_FALSE(wants({{"memory_node", "dram"}}));
  EXPECT_FALSE(wants({{"threads", "hbm"}})) << "eight threads are not node 8";
  EXPECT_FALSE(wants({{"depth", std::uint64_t{1}}}));
}

TEST(Experiment, NodesAreTheNearestOfEachKind) {
  const Machine machine = Machine::load("xeon-max").value();
  EXPECT_EQ(ids(one_of_each_kind(machine, machine.nodes[5])), (std::vector<std::uint32_t>{5, 13}));
  EXPECT_EQ(memory_nodes(machine).size(), 16u);
}

}  // namespace
}  // namespace headrace
