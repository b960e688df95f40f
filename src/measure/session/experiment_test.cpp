#include "measure/session/experiment.h"

#include <gtest/gtest.h>

namespace headrace::session {
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
  constexpr Parameter kNamed[] = {{"cpu_node", ParameterKind::node},
                                  {"memory_node", ParameterKind::node},
                                  {"mix", ParameterKind::mix},
                                  {"threads", ParameterKind::count}};
  const auto wants = [&](ParameterChoices only) {
    return Scope{machine, std::move(only)}.wants(row, kNamed);
  };
  EXPECT_TRUE(wants({}));
  EXPECT_TRUE(wants({{"mix", "read"}, {"memory_node", std::uint64_t{8}}}));
  EXPECT_TRUE(wants({{"memory_node", "hbm"}, {"cpu_node", "dram"}}));
  EXPECT_FALSE(wants({{"memory_node", "dram"}}));
  EXPECT_FALSE(wants({{"threads", "hbm"}})) << "eight threads are not node 8";
  EXPECT_FALSE(wants({{"depth", std::uint64_t{1}}}));
  EXPECT_TRUE(wants({{"mix", std::vector<ParameterValue>{"write", "read"}}})) << "one of them";
  EXPECT_FALSE(wants({{"mix", std::vector<ParameterValue>{"write", "copy"}}}));
  const Row nothing{.experiment = "bandwidth", .reason = "no CPU"};
  EXPECT_TRUE((Scope{machine, {{"mix", "read"}}}.wants(nothing, kNamed)));
  EXPECT_FALSE((Scope{machine, {{"depth", "read"}}}.wants(nothing, kNamed)));
}

TEST(Experiment, NodesAreTheNearestOfEachKind) {
  const Machine machine = Machine::load("xeon-max").value();
  EXPECT_EQ(ids(one_of_each_kind(machine, machine.nodes[5])), (std::vector<std::uint32_t>{5, 13}));
  EXPECT_EQ(memory_nodes(machine).size(), 16u);
}

TEST(Experiment, ANodeOfCpusWithoutDimmsHasNoMemoryToMeasure) {
  Machine machine = Machine::load("xeon-max").value();
  machine.nodes[5].capacity = Bytes{0};
  EXPECT_EQ(memory_nodes(machine).size(), 15u);
  EXPECT_EQ(ids(one_of_each_kind(machine, machine.nodes[5])), (std::vector<std::uint32_t>{4, 13}));
}

}  // namespace
}  // namespace headrace::session
