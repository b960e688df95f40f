// SPDX-License-Identifier: Apache-2.0
#include "measure/session/experiment.h"

#include <gtest/gtest.h>

namespace headrace::session {
namespace {

// As controllers of DDR memory do.
class OfDram final : public BusCounter {
 public:
  Result<double> bytes() override { return 0; }
  const std::string& words() const override { return words_; }
  bool counts(const Node& node) const override { return node.kind == NodeKind::dram; }

 private:
  const std::string words_ = "DDR controllers";
};

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
  const auto may_want = [&](ParameterChoices only) {
    return Scope{machine, std::move(only)}.may_want(row, kNamed);
  };
  EXPECT_TRUE(may_want({{"depth", std::uint64_t{1}}})) << "it does not say";
  EXPECT_FALSE(may_want({{"depth", std::uint64_t{1}}, {"memory_node", "dram"}}));
  EXPECT_TRUE(wants({}));
  EXPECT_TRUE(wants({{"mix", "read"}, {"memory_node", std::uint64_t{8}}}));
  EXPECT_TRUE(wants({{"memory_node", "hbm"}, {"cpu_node", "dram"}}));
  EXPECT_FALSE(wants({{"memory_node", "dram"}}));
  EXPECT_FALSE(wants({{"threads", "hbm"}})) << "eight threads are not node 8";
  EXPECT_FALSE(wants({{"depth", std::uint64_t{1}}}));
  EXPECT_TRUE(wants({{"mix", std::vector<ParameterValue>{"write", "read"}}})) << "one of them";
  EXPECT_FALSE(wants({{"mix", std::vector<ParameterValue>{"write", "copy"}}}));
  const Row team{.experiment = "bandwidth",
                 .parameters = {{"cpu_node", "0-7"}, {"memory_node", "8-15"}, {"on", "machine"}}};
  const Row alone{.experiment = "bandwidth",
                  .parameters = {{"cpu_node", "0"}, {"memory_node", "0"}, {"on", "core"}}};
  constexpr Parameter kOfTeams[] = {{"cpu_node", ParameterKind::node},
                                    {"memory_node", ParameterKind::node},
                                    {"on", ParameterKind::word, false, true}};
  const auto wants_team = [&](const Row& of, ParameterChoices only) {
    return Scope{machine, std::move(only)}.wants(of, kOfTeams);
  };
  EXPECT_TRUE(wants_team(team, {{"on", "machine"}, {"memory_node", "hbm"}, {"cpu_node", "0-7"}}));
  EXPECT_FALSE(wants_team(team, {{"on", "machine"}, {"memory_node", "dram"}}));
  EXPECT_FALSE(wants_team(team, {{"on", "machine"}, {"memory_node", std::uint64_t{8}}}));
  EXPECT_TRUE(wants_team(alone, {{"on", "core"}, {"cpu_node", std::uint64_t{0}}}));
  EXPECT_FALSE(wants_team(alone, {{"cpu_node", std::uint64_t{0}}})) << "the node was asked for";
  const Row nothing{.experiment = "bandwidth", .reason = "no CPU"};
  EXPECT_TRUE((Scope{machine, {{"mix", "read"}}}.wants(nothing, kNamed)));
  EXPECT_FALSE((Scope{machine, {{"depth", "read"}}}.wants(nothing, kNamed)));
}

// DDR on nodes 0 to 7, HBM on 8 to 15.
TEST(Scope, TheBusIsCountedWhereTheCounterCountsAllNodesOfAPoint) {
  const Machine machine = Machine::load("xeon-max").value();
  const Scope scope{.machine = machine,
                    .bus = std::make_shared<BusMeter>(std::make_unique<OfDram>())};
  const auto counted_by = [&](const std::vector<NodeId>& nodes) {
    return scope.bus_of(nodes)->words();
  };
  EXPECT_EQ(counted_by({NodeId{0}}), "DDR controllers");
  EXPECT_EQ(counted_by({NodeId{0}, NodeId{7}}), "DDR controllers");
  EXPECT_EQ(counted_by({NodeId{8}}), "");
  EXPECT_EQ(counted_by({NodeId{0}, NodeId{8}}), "") << "half of it would be";
  EXPECT_EQ(counted_by({NodeId{99}}), "");
  EXPECT_EQ(Scope{machine}.bus_of({NodeId{0}})->words(), "");
}

TEST(Experiment, NodesAreTheNearestOfEachKind) {
  const Machine machine = Machine::load("xeon-max").value();
  EXPECT_EQ(ids(one_of_each_kind(machine, machine.nodes[5])), (std::vector<std::uint32_t>{5, 13}));
  EXPECT_EQ(memory_nodes(machine).size(), 16u);
}

TEST(PastCaches, AVirtualMachineThatShowsASmallCacheHasLargeBuffersAllTheSame) {
  Machine machine;
  machine.caches = {{.level = 3, .size = 16_MiB, .cpus = {0, 1}},
                    {.level = 3, .size = 300_MiB, .cpus = {2, 3, 4, 5, 6, 7}}};
  const auto bytes = [&](const CpuSet& cpus, Bytes least = 1_MiB) {
    Row row;
    const Bytes found = past_caches(row, machine, cpus, 4, least);
    EXPECT_TRUE(row.flags.empty());
    return found;
  };
  EXPECT_EQ(bytes({0}), 64_MiB);
  EXPECT_EQ(bytes({0}, 80_MiB), 80_MiB);
  machine.provenance["hypervisor"] = "yes";
  EXPECT_EQ(bytes({0}), 512_MiB);
  EXPECT_EQ(bytes({0}, 1_GiB), 1_GiB);
  EXPECT_EQ(bytes({2}), 1200_MiB);
}

TEST(FlagPartlyCached, MarksRowsOfBuffersOfTheSameCpus) {
  const auto row = [](const char* experiment, ParameterValue node, const char* state = "cold") {
    return Row{.experiment = experiment,
               .parameters = {{"cpu_node", std::move(node)}, {"state", state}},
               .value = Summary{.median = 1}};
  };
  const auto flagged = [&](double after_walk, const char* flag = "shrunk") {
    std::vector<Row> rows = {
        row("bandwidth", std::uint64_t{1}), row("stream", "0-1"),
        row("copy", std::uint64_t{1}),      row("copy", std::uint64_t{1}, "hot"),
        row("bandwidth", std::uint64_t{0}), row("latency", std::uint64_t{1}),
        row("storage", std::uint64_t{1}),   row("loaded", std::uint64_t{1})};
    rows.back().value.reset();
    rows[5].details["after_walk"] = after_walk;
    rows[5].add_flag(flag);
    flag_partly_cached(rows);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].has_flag("partly_cached")) found.push_back(i);
    }
    return found;
  };
  EXPECT_EQ(flagged(0.94), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_TRUE(flagged(0.96).empty());
  EXPECT_TRUE(flagged(1.1).empty());
  EXPECT_TRUE(flagged(0.5, "noisy").empty()) << "nothing follows from a busy moment";
}

TEST(Experiment, ANodeOfCpusWithoutDimmsHasNoMemoryToMeasure) {
  Machine machine = Machine::load("xeon-max").value();
  machine.nodes[5].capacity = Bytes{0};
  EXPECT_EQ(memory_nodes(machine).size(), 15u);
  EXPECT_EQ(ids(one_of_each_kind(machine, machine.nodes[5])), (std::vector<std::uint32_t>{4, 13}));
}

}  // namespace
}  // namespace headrace::session
