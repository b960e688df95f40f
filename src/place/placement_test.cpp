// SPDX-License-Identifier: Apache-2.0
#include "headrace/placement.h"

#include <gtest/gtest.h>

#include "tests/support/machines.h"

namespace headrace {
namespace {

using test::kDisk;
using test::kDram;
using test::kHbm;
using test::small_machine;

std::vector<NodeId> ids(const Placement& placement) {
  std::vector<NodeId> found;
  for (const NodeWeight& each : placement.nodes) found.push_back(each.node);
  return found;
}

std::vector<NodeId> nodes(std::initializer_list<std::uint32_t> numbers) {
  std::vector<NodeId> found;
  for (const auto number : numbers) found.push_back(NodeId{number});
  return found;
}

TEST(ResolveTest, NodesStayAndKindsBecomeNodes) {
  const Machine machine = small_machine();
  Placement wish = Placement::weighted({{kDram, 3}, {kHbm, 1}});
  wish.pages = PageSize::huge_2m;
  const auto same = resolve(machine, wish);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->nodes, wish.nodes);
  EXPECT_EQ(same->pages, PageSize::huge_2m);
  const auto hbm = resolve(machine, Placement::on(NodeKind::hbm));
  ASSERT_TRUE(hbm);
  EXPECT_EQ(hbm->kind, std::nullopt);
  EXPECT_EQ(ids(*hbm), nodes({8}));
}

TEST(ResolveTest, KindsComeNearestFirst) {
  const auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  const auto any = resolve(*machine, Placement::on(NodeKind::hbm));
  ASSERT_TRUE(any);
  EXPECT_EQ(ids(*any), nodes({8, 9, 10, 11, 12, 13, 14, 15}));
  for (const Distribution distribution : {Distribution::interleave, Distribution::first_touch}) {
    const auto all =
        resolve(*machine, {.kind = NodeKind::hbm, .distribution = distribution}, NodeId{6});
    ASSERT_TRUE(all);
    // Its own tile's, then the rest of its socket, then the other socket.
    EXPECT_EQ(ids(*all), nodes({14, 12, 13, 15, 8, 9, 10, 11}));
    EXPECT_TRUE(all->spill.empty());
    EXPECT_EQ(all->distribution, distribution);
  }
}

TEST(ResolveTest, AKindIsItsNearestNodeAndSpillsToTheNextOfItOnly) {
  const auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  for (const auto& [kind, from, text] :
       std::vector<std::tuple<NodeKind, std::uint32_t, std::string>>{
           {NodeKind::hbm, 6, "14:12:13:15:8:9:10:11"}, {NodeKind::dram, 2, "2:0:1:3:4:5:6:7"}}) {
    const auto strict = resolve(*machine, Placement::on(kind), NodeId{from});
    ASSERT_TRUE(strict);
    EXPECT_EQ(strict->to_text(), text);
    EXPECT_TRUE(strict->strict);
    EXPECT_EQ(resolve(*machine, *strict)->to_text(), text) << "and stays so";
    Placement wish = Placement::on(kind);
    wish.strict = false;
    EXPECT_EQ(resolve(*machine, wish, NodeId{from})->spill.size(), 15U) << "all other memory";
    wish.spill = {NodeId{kind == NodeKind::hbm ? 3U : 9U}};
    EXPECT_EQ(resolve(*machine, wish, NodeId{from})->to_text(),
              text + (kind == NodeKind::hbm ? ":3" : ":9"));
  }
}

// Two CXL devices at each of two sockets: those of the caller's socket, interleaved.
TEST(ResolveTest, EquallyNearNodesOfAKind_AreInterleaved) {
  Machine machine;
  for (std::uint32_t i = 0; i < 6; ++i) {
    machine.nodes.push_back({.id = NodeId{i},
                             .kind = i < 2 ? NodeKind::dram : NodeKind::cxl,
                             .reason = "test",
                             .capacity = 1_GiB,
                             .cpus = i < 2 ? CpuSet{i} : CpuSet{},
                             .socket = i < 2 ? i : i / 2 - 1});
  }
  const auto near = resolve(machine, Placement::on(NodeKind::cxl), NodeId{1});
  ASSERT_TRUE(near) << near.error().message;
  EXPECT_EQ(near->to_text(), "4-5:2:3");
  EXPECT_EQ(resolve(machine, Placement::interleave(NodeKind::cxl), NodeId{1})->to_text(), "2-5");
}

TEST(ResolveTest, DistanceComesFirst) {
  Machine machine = small_machine();
  machine.nodes.insert(machine.nodes.begin() + 2,
                       {.id = NodeId{9}, .kind = NodeKind::hbm, .capacity = 1_GiB});
  machine.nodes[0].distances = {{kDram, 10}, {kHbm, 20}, {NodeId{9}, 13}};
  EXPECT_EQ(resolve(machine, Placement::on(NodeKind::hbm), kDram)->to_text(), "9:8");
}

TEST(ResolveTest, APropertyIsItsBestNodeAndTheOthersSpill) {
  const Machine machine = small_machine();
  const auto strict = resolve(machine, Placement::on(Property::fastest));
  ASSERT_TRUE(strict);
  EXPECT_EQ(ids(*strict), nodes({8}));
  EXPECT_TRUE(strict->spill.empty());
  EXPECT_EQ(strict->reason, "node 8 (hbm) is fastest");
  Placement wish = Placement::on(Property::largest);
  wish.strict = false;
  const auto spilling = resolve(machine, wish);
  EXPECT_EQ(ids(*spilling), nodes({0}));
  EXPECT_EQ(spilling->spill, (std::vector<NodeChoice>{kHbm}));
}

TEST(ResolveTest, SpillsByKindAreNodesInOrderAndNotThoseAlreadyThere) {
  const auto machine = Machine::load("xeon-max");
  Placement wish = Placement::on(NodeId{9});
  wish.strict = false;
  wish.spill = {NodeKind::hbm, NodeId{3}};
  wish.near = {12, 13};  // of tile 1
  const auto resolved = resolve(*machine, wish);
  ASSERT_TRUE(resolved) << resolved.error().message;
  ASSERT_EQ(resolved->spill.size(), 8U);
  EXPECT_EQ(resolved->spill.front(), NodeChoice(NodeId{8}));
  EXPECT_EQ(resolved->spill.back(), NodeChoice(NodeId{3}));
  wish.spill = {NodeId{9}};
  EXPECT_EQ(resolve(*machine, wish).error().code, ErrorCode::invalid);
}

// Threads on four tiles, or on all: the memory of each is interleaved, instead of all on one tile.
TEST(ResolveTest, CpusOfSeveralNodesHaveTheNearestNodeOfEachInTurn) {
  const auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  const auto near_tiles = [&](NodeKind kind, std::initializer_list<std::size_t> tiles) {
    Placement wish = Placement::on(kind);
    for (const std::size_t tile : tiles) {
      const CpuSet& cpus = machine->nodes[tile].cpus;
      wish.near.insert(wish.near.end(), cpus.begin(), cpus.end());
    }
    return resolve(*machine, wish)->to_text();
  };
  EXPECT_EQ(near_tiles(NodeKind::hbm, {0, 1, 2, 3}), "8-11:12:13:14:15");
  EXPECT_EQ(near_tiles(NodeKind::hbm, {0, 1, 2, 3, 4, 5, 6, 7}), "8-15");
  EXPECT_EQ(near_tiles(NodeKind::dram, {1, 6}), "1,6:0:2:3:4:5:7");
}

TEST(ResolveTest, NearIsWhereTheCpusAre) {
  const auto machine = Machine::load("xeon-max");
  Placement wish = Placement::on(NodeKind::hbm);
  wish.near = machine->nodes[6].cpus;
  EXPECT_EQ(ids(*resolve(*machine, wish)).front(), NodeId{14});
  wish.near = {100'000};
  EXPECT_EQ(resolve(*machine, wish).error().code, ErrorCode::absent);
}

TEST(ResolveTest, Storage_IsValidOnlyAloneAndWhereFilesAre) {
  const Machine machine = small_machine();
  for (const Placement& wish : {Placement::on(NodeKind::storage), Placement::on(kDisk)}) {
    EXPECT_EQ(storage_of(machine, wish), machine.find(kDisk));
    EXPECT_EQ(ids(*resolve_with_storage(machine, wish)), std::vector{kDisk});
    EXPECT_EQ(resolve(machine, wish).error().code, ErrorCode::unsupported);
  }
  Placement spilling = Placement::on(kDisk);
  spilling.strict = false;
  EXPECT_TRUE(resolve_with_storage(machine, spilling));
  spilling.spill = {kDram};
  for (const Placement& wish : {spilling, Placement::interleave({kDram, kDisk}),
                                Placement::on(Property::largest), Placement::on(kDram)}) {
    EXPECT_EQ(storage_of(machine, wish), nullptr);
  }
  EXPECT_EQ(resolve_with_storage(machine, spilling).error().code, ErrorCode::unsupported);
  const Placement weightless = Placement::weighted({{kDisk, 0}});
  EXPECT_EQ(resolve_with_storage(machine, weightless).error().code, ErrorCode::invalid);
  EXPECT_EQ(ids(*resolve_with_storage(machine, Placement::on(NodeKind::hbm))), std::vector{kHbm});
}

TEST(ResolveTest, Errors_NameTheMistake) {
  const Machine machine = small_machine();
  const auto code = [&](const Placement& wish) {
    const auto resolved = resolve(machine, wish);
    return resolved ? std::optional<ErrorCode>() : resolved.error().code;
  };
  EXPECT_EQ(code(Placement::on(NodeId{3})), ErrorCode::absent);
  EXPECT_EQ(code(Placement::on(NodeKind::cxl)), ErrorCode::absent);
  EXPECT_EQ(code(Placement::on(kDisk)), ErrorCode::unsupported);
  EXPECT_EQ(code(Placement::on(NodeKind::storage)), ErrorCode::unsupported);
  EXPECT_EQ(code({}), ErrorCode::invalid);
  EXPECT_EQ(code(Placement::weighted({{kDram, 0}})), ErrorCode::invalid);
  EXPECT_EQ(code(Placement::weighted({{kDram, 255}})), std::nullopt);
  EXPECT_EQ(code(Placement::weighted({{kDram, 256}})), ErrorCode::invalid);
  EXPECT_EQ(code(Placement::weighted({{kDram, 1}, {kDram, 2}})), ErrorCode::invalid);
  Placement both = Placement::on(kDram);
  both.kind = NodeKind::hbm;
  EXPECT_EQ(code(both), ErrorCode::invalid);
  Placement strict = Placement::on(kDram);
  strict.spill = {kHbm};
  EXPECT_EQ(code(strict), ErrorCode::invalid);
  strict = Placement::on(NodeKind::dram);
  strict.spill = {NodeKind::hbm};
  EXPECT_EQ(code(strict), ErrorCode::invalid);
  Placement touched{
      .kind = NodeKind::dram, .distribution = Distribution::first_touch, .lock = true};
  EXPECT_EQ(code(touched), ErrorCode::invalid);
  touched.lock = touched.strict = false;
  EXPECT_EQ(code(touched), std::nullopt);
  touched.spill = {kHbm};
  EXPECT_EQ(code(touched), ErrorCode::invalid);
  for (const Distribution distribution : {Distribution::first_touch, Distribution::interleave}) {
    EXPECT_EQ(code({.distribution = distribution, .property = Property::largest}),
              ErrorCode::invalid);
  }
  Placement weighted = Placement::weighted({{kDram, 3}, {kHbm, 1}});
  weighted.distribution = Distribution::first_touch;
  EXPECT_EQ(code(weighted), ErrorCode::invalid);
  weighted.nodes[0].weight = 1;
  EXPECT_EQ(code(weighted), std::nullopt);
  EXPECT_EQ(resolve(machine, Placement::on(NodeKind::cxl)).error().message,
            "no cxl node here, only dram, hbm, storage; if one was not recognised set "
            "HEADRACE_NODES=ID=cxl");
  EXPECT_EQ(resolve(machine, Placement::on(NodeKind::hbm), NodeId{77}).error().code,
            ErrorCode::absent);
}

TEST(ResolveTest, RequestForHbmInCacheMode_NamesTheMode) {
  Machine machine = small_machine();
  std::erase_if(machine.nodes, [](const Node& node) { return node.kind == NodeKind::hbm; });
  machine.nodes.front().side_cache = MemorySideCache{.size = 64_GiB};
  machine.provenance["cpu"] = "Intel(R) Xeon(R) CPU Max 9468";
  const auto refused = resolve(machine, Placement::on(NodeKind::hbm));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
  EXPECT_EQ(
      refused.error().message,
      "no hbm node here, only dram, storage; HBM is in cache mode: 64 GiB before node 0, where "
      "nothing can be allocated; flat mode is set in the BIOS (Memory Hierarchy: Flat)");
  EXPECT_EQ(resolve(machine, Placement::on(NodeKind::cxl)).error().message.find("cache mode"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace
