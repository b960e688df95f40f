// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "headrace/placement.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

using test::kDisk;
using test::kDram;
using test::kHbm;
using test::small_machine;

std::optional<NodeId> fast(const Machine& machine, std::uint32_t source,
                           std::optional<NodeId> initiator = {}, Bytes bytes = 1_MiB) {
  const auto placement = place::nearest_fast(
      machine, {.source = NodeId{source}, .bytes = bytes, .initiator = initiator});
  if (!placement) {
    EXPECT_EQ(placement.error().code, ErrorCode::absent);
    return std::nullopt;
  }
  EXPECT_FALSE(placement->reason.empty());
  EXPECT_EQ(placement->nodes.size(), 1u);
  return placement->nodes[0].node;
}

TEST(NearestFastTest, ByKind) {
  const Machine machine = small_machine();
  EXPECT_EQ(fast(machine, 1000), kHbm);
  EXPECT_EQ(fast(machine, 0), kHbm);
  EXPECT_EQ(fast(machine, 8), std::nullopt);
  EXPECT_EQ(fast(machine, 7), std::nullopt);  // no such node
}

TEST(NearestFastTest, OnlyWhereThereIsRoom) {
  const Machine machine = small_machine();
  EXPECT_EQ(fast(machine, 1000, std::nullopt, 512_MiB), kDram);
  EXPECT_EQ(fast(machine, 1000, std::nullopt, 2_GiB), std::nullopt);
}

TEST(NearestFastTest, TheHbmOfTheInitiatorsTile) {
  const auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  EXPECT_EQ(fast(*machine, 2, NodeId{2}), NodeId{10});
  EXPECT_EQ(fast(*machine, 0, NodeId{6}), NodeId{14});
  EXPECT_EQ(fast(*machine, 5), NodeId{13});  // by default the source's own CPUs
  // Equally fast, but on the other socket.
  EXPECT_EQ(fast(*machine, 8, NodeId{5}), NodeId{13});
  EXPECT_EQ(fast(*machine, 8, NodeId{1}), std::nullopt);
}

TEST(NearestFastTest, DramBeforeCxl) {
  const auto machine = Machine::load("cxl-a1000");
  ASSERT_TRUE(machine);
  EXPECT_EQ(fast(*machine, 8, NodeId{2}), NodeId{2});
  EXPECT_EQ(fast(*machine, 8, NodeId{6}), NodeId{6});
  EXPECT_EQ(fast(*machine, 2, NodeId{2}), std::nullopt);
}

TEST(NearestFastTest, MeasurementsBeatFirmwareAndKind) {
  Machine machine = small_machine();
  machine.nodes[0].access = {{.initiator = kDram, .read_bandwidth = BytesPerSecond{50e9}}};
  machine.nodes[1].access = {{.initiator = kDram, .read_bandwidth = BytesPerSecond{20e9}}};
  EXPECT_EQ(fast(machine, 8), kDram);
  EXPECT_EQ(fast(machine, 0), std::nullopt);
  const auto measured = [](double rate) {
    return AccessAttributes{.initiator = kDram, .read_bandwidth = {{rate}}, .measured = true};
  };
  machine.nodes[0].access.push_back(measured(10e9));
  machine.nodes[1].access.push_back(measured(12e9));
  EXPECT_EQ(fast(machine, 0), kHbm);
  machine.nodes[1].access.back() = measured(10.5e9);  // no difference beyond the tolerance
  EXPECT_EQ(fast(machine, 0), std::nullopt);
  // A scale that does not know every node is not used.
  machine.nodes[1].access.pop_back();
  EXPECT_EQ(fast(machine, 8), kDram);
}

// The cores of an engine may be slower than both memories.
TEST(NearestFastTest, EqualCopyRatesDoNotHideAFasterNode) {
  Machine machine = small_machine();
  for (const NodeId id : {kDram, kHbm}) {
    machine.copy_rates.push_back(
        {.engine = test::kCpuA, .from = id, .to = id, .bandwidth = {10e9}});
  }
  EXPECT_EQ(fast(machine, 0), kHbm);
}

TEST(AlwaysTest, IsThatNodeOrAnError) {
  const Machine machine = small_machine();
  const PlacementRequest request{.source = kDisk, .bytes = 1_MiB};
  EXPECT_EQ(place::always(kDram)(machine, request)->nodes[0].node, kDram);
  EXPECT_EQ(place::always(NodeId{3})(machine, request).error().code, ErrorCode::absent);
  EXPECT_EQ(place::always(kDisk)(machine, request).error().code, ErrorCode::unsupported);
}

// Random machines: the chosen node is memory, has the capacity, and is not the source.
TEST(NearestFastTest, RandomMachines_GetAValidNode) {
  EXPECT_TRUE(rc::check([] {
    Machine machine;
    const auto count = *rc::gen::inRange(1u, 6u);
    for (unsigned i = 0; i < count; ++i) {
      Node node{.id = NodeId{i},
                .kind = *rc::gen::element(NodeKind::dram, NodeKind::hbm, NodeKind::cxl,
                                          NodeKind::storage),
                .capacity = Bytes{*rc::gen::inRange<std::uint64_t>(0, 4)} * (1 << 20)};
      if (*rc::gen::arbitrary<bool>()) node.cpus = {i};
      if (*rc::gen::arbitrary<bool>()) node.socket = *rc::gen::inRange(0u, 2u);
      if (*rc::gen::arbitrary<bool>()) {
        node.access = {{.initiator = NodeId{0},
                        .read_bandwidth = BytesPerSecond{*rc::gen::inRange(1, 9) * 1e10}}};
      }
      machine.nodes.push_back(std::move(node));
    }
    const PlacementRequest request{.source = NodeId{*rc::gen::inRange(0u, count)}, .bytes = 2_MiB};
    const auto placement = place::nearest_fast(machine, request);
    if (!placement) return;
    const Node& chosen = *machine.find(placement->nodes.at(0).node);
    RC_ASSERT(chosen.byte_addressable());
    RC_ASSERT(*chosen.capacity >= 2_MiB);
    RC_ASSERT(chosen.id != request.source);
    RC_ASSERT(resolve(machine, *placement).has_value());
  }));
}

}  // namespace
}  // namespace headrace
