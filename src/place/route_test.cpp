// SPDX-License-Identifier: Apache-2.0
#include "headrace/route.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "place/route_testing.h"

namespace headrace {
namespace {

using test::engines;
using test::Ids;
using test::kCpuA;
using test::kCpuB;
using test::kDisk;
using test::kDram;
using test::kHbm;
using test::kSsd;
using test::random_machine;
using test::random_request;
using test::small_machine;
using test::xeon_max;

constexpr std::uint64_t kPage = 4096;

TEST(EnginesBetweenTest, AreThoseThatCanCopy) {
  const Machine machine = small_machine();
  EXPECT_EQ(engines_between(machine, kDram, kHbm), (std::vector<EngineId>{kCpuA, kCpuB}));
  EXPECT_EQ(engines_between(machine, kDisk, kHbm), (std::vector<EngineId>{kSsd}));
  EXPECT_TRUE(engines_between(machine, kDisk, kDisk).empty());
  EXPECT_TRUE(engines_between(machine, NodeId{5}, kDram).empty());
}

TEST(OneTest, TheDestinationsEngineThenTheSources) {
  Machine machine = small_machine();
  EXPECT_EQ(engines(place::one(machine, {kDram, kHbm, 1_MiB})), Ids{1});
  EXPECT_EQ(engines(place::one(machine, {kHbm, kDram, 1_MiB})), Ids{0});
  EXPECT_EQ(engines(place::one(machine, {kDisk, kHbm, 1_MiB})), Ids{2});
  machine.engines[1].home = kDram;  // none at the destination
  EXPECT_EQ(engines(place::one(machine, {kDram, kHbm, 1_MiB})), Ids{0});
}

TEST(OneTest, ANodeWithoutCpusIsServedFromItsNeighbour) {
  EXPECT_EQ(engines(place::one(xeon_max(), {NodeId{0}, NodeId{13}, 1_MiB})), Ids{5});
}

TEST(OneTest, DevicesForCopyingGoBeforeCores) {
  Machine machine = xeon_max();
  EXPECT_EQ(machine.find(EngineId{3})->kind, EngineKind::dsa);
  EXPECT_EQ(engines(place::one(machine, {NodeId{3}, NodeId{3}, 1_MiB})), Ids{3});
  std::erase_if(machine.engines, [](const Engine& e) { return e.kind == EngineKind::dsa; });
  for (std::size_t i = 0; i < 8; ++i) machine.engines[i].id = EngineId{static_cast<unsigned>(i)};
  EXPECT_EQ(engines(place::one(machine, {NodeId{3}, NodeId{3}, 1_MiB})), Ids{3});
  EXPECT_EQ(machine.find(EngineId{3})->kind, EngineKind::cpu);
}

TEST(RouteTest, MoveWithoutEngine_IsAbsent) {
  const Machine machine = small_machine();
  for (const auto policy : {place::one, place::brute_force, place::smart, place::measured}) {
    EXPECT_EQ(policy(machine, {kDisk, kDisk, 1_MiB}).error().code, ErrorCode::absent);
    EXPECT_EQ(policy(machine, {kDisk, NodeId{5}, 1_MiB}).error().code, ErrorCode::absent);
  }
}

TEST(BruteForceTest, AllEnginesOfTheKindInEqualShares) {
  const auto route = place::brute_force(xeon_max(), {NodeId{0}, NodeId{15}, 8_MiB});
  EXPECT_EQ(engines(route), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  for (const RoutePart& part : route->parts) EXPECT_EQ(part.length, 1_MiB);
}

TEST(SmartTest, OnASocketAllItsEnginesAcrossOnlyTheEnds) {
  const Machine machine = xeon_max();
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{8}, 1_GiB})), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{11}, 1_GiB})), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{12}, 1_GiB})), (Ids{0, 4}));
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{15}, 1_GiB})), (Ids{0, 7}));
}

TEST(SmartTest, BelowAMebibyteOneEngine) {
  const Machine machine = xeon_max();
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{8}, 1_MiB - 1_B})), Ids{0});
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{8}, 1_MiB})).size(), 4u);
}

// Sockets from distances alone: 10-14 inside, 21-23 across.
TEST(SmartTest, SocketsShowInTheDistances) {
  Machine machine = xeon_max();
  for (Node& node : machine.nodes) {
    for (const Node& other : machine.nodes) {
      const bool together = raw(node.id) % 8 / 4 == raw(other.id) % 8 / 4;
      const bool tile = raw(node.id) % 8 == raw(other.id) % 8;
      const unsigned inside = node.id == other.id ? 10 : (tile ? 13 : 14);
      node.distances[other.id] = together ? inside : 23;
    }
  }
  for (Node& node : machine.nodes) node.socket.reset(), node.access.clear();
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{11}, 1_GiB})), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(engines(place::smart(machine, {NodeId{0}, NodeId{15}, 1_GiB})), (Ids{0, 7}));
}

TEST(SmartTest, UnknownSocketsMeanOneEngine) {
  Machine machine = xeon_max();
  for (Node& node : machine.nodes) node.socket.reset();
  const auto route = place::smart(machine, {NodeId{0}, NodeId{8}, 1_GiB});
  EXPECT_EQ(engines(route), Ids{0});
  EXPECT_NE(route->reason.find("sockets unknown"), std::string::npos);
}

TEST(PolicyTest, NamesLeadToPolicies) {
  const Machine machine = small_machine();
  for (const char* name : {"one", "brute_force", "smart", "measured"}) {
    const auto policy = place::route_policy(name);
    ASSERT_TRUE(policy) << name;
    EXPECT_TRUE((*policy)(machine, {kDram, kHbm, 1_MiB}));
  }
  EXPECT_EQ((*place::route_policy("brute_force"))(machine, {kDram, kHbm, 1_MiB})->parts.size(), 2u);
  const auto none = place::route_policy("fast");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::absent);
  EXPECT_EQ(none.error().message,
            "no route policy 'fast'; say one, brute_force, smart or measured");
}

void check_covers(const Machine& machine, const RouteRequest& request, const Route& route) {
  std::uint64_t at = 0;
  std::set<EngineId> used;
  for (const RoutePart& part : route.parts) {
    RC_ASSERT(part.offset == at);
    RC_ASSERT(part.length.value > 0);
    RC_ASSERT(part.offset % kPage == 0);
    RC_ASSERT(used.insert(part.engine).second);
    RC_ASSERT(can_copy(*machine.find(part.engine), *machine.find(request.from),
                       *machine.find(request.to)));
    at += part.length.value;
  }
  RC_ASSERT(at == request.bytes.value);
  RC_ASSERT(!route.reason.empty());
}

TEST(RouteTest, EveryRouteCoversItsMoveExactly) {
  EXPECT_TRUE(rc::check([] {
    const Machine machine = random_machine();
    const RouteRequest request = random_request(machine);
    const bool possible = !engines_between(machine, request.from, request.to).empty();
    for (const auto policy : {place::one, place::brute_force, place::smart, place::measured}) {
      const auto route = policy(machine, request);
      RC_ASSERT(route.has_value() == possible);
      if (!route) continue;
      check_covers(machine, request, *route);
      RC_ASSERT(policy(machine, request)->parts == route->parts);  // the same every time
    }
  }));
}

}  // namespace
}  // namespace headrace
