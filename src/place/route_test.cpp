#include "headrace/route.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "support/machines.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;
using test::kDisk;
using test::kDram;
using test::kHbm;
using test::kSsd;
using test::small_machine;

constexpr std::uint64_t kPage = 4096;

std::vector<std::uint32_t> engines(const Result<Route>& route) {
  EXPECT_TRUE(route) << route.error().message;
  std::vector<std::uint32_t> found;
  if (!route) return found;
  for (const RoutePart& part : route->parts) found.push_back(raw(part.engine));
  return found;
}

using Ids = std::vector<std::uint32_t>;

Machine xeon_max() {
  auto machine = Machine::load("xeon-max");
  EXPECT_TRUE(machine);
  return *std::move(machine);
}

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

TEST(RouteTest, WhatCannotBeCopiedIsAbsent) {
  const Machine machine = small_machine();
  for (const auto policy : {place::one, place::brute_force, place::smart, place::measured}) {
    EXPECT_EQ(policy(machine, {kDisk, kDisk, 1_MiB, {}}).error().code, ErrorCode::absent);
    EXPECT_EQ(policy(machine, {kDisk, NodeId{5}, 1_MiB, {}}).error().code, ErrorCode::absent);
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

TEST(MeasuredTest, WithoutRatesItIsSmartAndSaysSo) {
  Machine machine = xeon_max();
  machine.copy_rates.clear();
  const auto route = place::measured(machine, {NodeId{0}, NodeId{8}, 1_GiB});
  EXPECT_EQ(engines(route), (Ids{0, 1, 2, 3}));
  EXPECT_TRUE(route->reason.starts_with("nothing measured from node 0 to node 8, so smart"))
      << route->reason;
}

CopyRate rate(EngineId engine, double gigabytes, int latency_us) {
  return {.engine = engine,
          .from = kDram,
          .to = kHbm,
          .latency = std::chrono::microseconds{latency_us},
          .bandwidth = {gigabytes * 1e9}};
}

TEST(MeasuredTest, SharesFollowTheRates) {
  Machine machine = small_machine();
  machine.copy_rates = {rate(kCpuA, 30, 0), rate(kCpuB, 10, 0)};
  const auto route = place::measured(machine, {kDram, kHbm, 64_MiB});
  ASSERT_EQ(engines(route), (Ids{0, 1}));
  EXPECT_EQ(route->parts[0].length, 48_MiB);
  EXPECT_EQ(route->parts[1].length, 16_MiB);
}

TEST(MeasuredTest, AnEngineThatCannotHelpInTimeIsLeftOut) {
  Machine machine = small_machine();
  machine.copy_rates = {rate(kCpuA, 10, 0), rate(kCpuB, 1000, 1000)};
  // 1 MiB takes A 105 us, before B has even begun; 1 GiB takes it 107 ms.
  EXPECT_EQ(engines(place::measured(machine, {kDram, kHbm, 1_MiB})), Ids{0});
  EXPECT_EQ(engines(place::measured(machine, {kDram, kHbm, 1_GiB})), (Ids{0, 1}));
}

TEST(MeasuredTest, OnlyMeasuredEnginesCount) {
  Machine machine = small_machine();
  machine.copy_rates = {rate(kCpuB, 1, 0)};
  EXPECT_EQ(engines(place::measured(machine, {kDram, kHbm, 1_GiB})), Ids{1});
  // The other direction was not measured.
  EXPECT_TRUE(
      place::measured(machine, {kHbm, kDram, 1_GiB})->reason.starts_with("nothing measured"));
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

// A few memory nodes and a disk with random engines, sockets, distances and rates.
Machine random_machine() {
  Machine machine;
  const auto memories = *rc::gen::inRange(1u, 5u);
  for (unsigned i = 0; i < memories; ++i) {
    Node node{.id = NodeId{i}, .kind = *rc::gen::element(NodeKind::dram, NodeKind::hbm)};
    if (*rc::gen::arbitrary<bool>()) node.cpus = {i};
    if (*rc::gen::arbitrary<bool>()) node.socket = *rc::gen::inRange(0u, 2u);
    if (*rc::gen::arbitrary<bool>()) node.distances[NodeId{0}] = *rc::gen::inRange(10u, 30u);
    machine.nodes.push_back(std::move(node));
  }
  machine.nodes.push_back({.id = kDisk, .kind = NodeKind::storage});
  const auto count = *rc::gen::inRange(0u, 6u);
  for (unsigned i = 0; i < count; ++i) {
    const auto kind =
        *rc::gen::element(EngineKind::cpu, EngineKind::dsa, EngineKind::ssd, EngineKind::migrate);
    const NodeId home = kind == EngineKind::ssd ? kDisk : NodeId{*rc::gen::inRange(0u, memories)};
    machine.engines.push_back({.id = EngineId{i}, .kind = kind, .name = "e", .home = home});
    for (const Node& from : machine.nodes) {
      for (const Node& to : machine.nodes) {
        if (*rc::gen::inRange(0, 3) == 0) continue;
        machine.copy_rates.push_back({.engine = EngineId{i},
                                      .from = from.id,
                                      .to = to.id,
                                      .latency = Nanoseconds{*rc::gen::inRange(0, 1'000'000)},
                                      .bandwidth = {*rc::gen::inRange(1, 300) * 1e8}});
      }
    }
  }
  return machine;
}

RouteRequest random_request(const Machine& machine) {
  const auto id = [&] { return *rc::gen::elementOf(machine.nodes); };
  const auto bytes = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 3 * kPage),
                                     rc::gen::inRange<std::uint64_t>(0, 8 << 20),
                                     rc::gen::inRange<std::uint64_t>(0, 1ull << 50));
  return {.from = id().id, .to = id().id, .bytes = {bytes}};
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

double cost(const Machine& machine, const RouteRequest& request, EngineId engine, Bytes bytes) {
  const CopyRate* found = machine.rate(engine, request.from, request.to);
  return seconds(found->latency) + static_cast<double>(bytes.value) / found->bandwidth.value;
}

// The naive model: no engine alone, and no equal split, is faster by the same costs.
TEST(MeasuredTest, IsNeverSlowerThanTheBestSingleEngine) {
  EXPECT_TRUE(rc::check([] {
    const Machine machine = random_machine();
    const RouteRequest request = random_request(machine);
    std::vector<EngineId> rated;
    for (const EngineId id : engines_between(machine, request.from, request.to)) {
      if (machine.rate(id, request.from, request.to) != nullptr) rated.push_back(id);
    }
    if (rated.empty() || request.bytes.value == 0) return;
    const auto route = place::measured(machine, request);
    RC_ASSERT(route.has_value());
    double slowest = 0;
    for (const RoutePart& part : route->parts) {
      RC_ASSERT(std::ranges::find(rated, part.engine) != rated.end());
      slowest = std::max(slowest, cost(machine, request, part.engine, part.length));
    }
    for (const EngineId id : rated) {
      RC_ASSERT(slowest <= cost(machine, request, id, request.bytes) * (1 + 1e-9));
    }
  }));
}

}  // namespace
}  // namespace headrace
