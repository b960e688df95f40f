// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "headrace/route.h"
#include "place/route_testing.h"

namespace headrace {
namespace {

using test::engines;
using test::Ids;
using test::kCpuA;
using test::kCpuB;
using test::kDram;
using test::kHbm;
using test::random_machine;
using test::random_request;
using test::small_machine;
using test::xeon_max;

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

double cost(const Machine& machine, const RouteRequest& request, EngineId engine, Bytes bytes) {
  const CopyRate* found = machine.rate(engine, request.from, request.to);
  return seconds(found->latency) + static_cast<double>(bytes.value) / found->bandwidth.value;
}

// The naive model: no single engine and no equal split is faster by the same costs.
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
