// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/implementations.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::cache_bench {
namespace {

Options of(std::string_view implementation, std::string_view scenario) {
  Options options;
  options.implementation = implementation;
  options.scenario = scenario;
  options.operations = kStride;
  return options;
}

// Scenarios with many blocks are for optimised code; the others execute the same paths.
bool quick(const Scenario& scenario) { return scenario.blocks <= 40'000; }

TEST(Implementations, RunEveryScenarioWithHitsThatHitAndMissesThatMiss) {
  for (const Implementation& each : implementations()) {
    if (each.run == nullptr) continue;
    for (const Scenario& scenario : kScenarios) {
      if (!quick(scenario)) continue;
      const auto row = run(of(each.name, scenario.name));
      ASSERT_TRUE(row) << row.error().message;
      EXPECT_EQ(row->at("wrong"), 0) << each.name << " " << scenario.name;
      EXPECT_GE(row->at("operations"), kStride) << each.name << " " << scenario.name;
      if (scenario.blocks == kHot) {
        EXPECT_EQ(row->at("misses"), 0) << each.name;
      } else if (scenario.name == "miss-fill") {
        EXPECT_EQ(row->at("misses"), row->at("operations")) << each.name;
      }
    }
  }
}

// Without files.
TEST(Implementations, TenantsAndCurve_AreForHeadrace) {
  for (const bool curve : {false, true}) {
    Options options = of("headrace", "hit-spread");
    (curve ? options.curve : options.tenants) = true;
    const auto row = run(options);
    ASSERT_TRUE(row) << row.error().message;
    EXPECT_EQ(row->at("wrong"), 0);
    EXPECT_EQ(row->at("misses"), 0);
    for (const auto& [name, scenario] :
         {std::pair{"sharded", "hit-spread"}, {"headrace", "small-miss"}, {"headrace", "chain"}}) {
      options.implementation = name;
      options.scenario = scenario;
      EXPECT_EQ(run(options).error().code, ErrorCode::unsupported) << name << ' ' << scenario;
    }
  }
}

TEST(Implementations, UnknownNamesAndPairs_AreErrors) {
  EXPECT_EQ(run(of("none", "hit-spread")).error().code, ErrorCode::absent);
  EXPECT_EQ(run(of("headrace", "none")).error().code, ErrorCode::absent);
  EXPECT_EQ(run(of("chase", "small-miss")).error().code, ErrorCode::unsupported);
}

TEST(Implementations, TheListNamesThemAll) {
  const nlohmann::ordered_json there = list();
  ASSERT_EQ(there.at("implementations").size(), 7U);
  for (const auto& each : there.at("implementations")) {
    EXPECT_NE(each.at("about"), "");
  }
  EXPECT_EQ(there.at("scenarios").size(), std::size(kScenarios) + std::size(kFileScenarios));
  EXPECT_EQ(there.at("scenarios").back().at("name"), "buffer-pool");
  EXPECT_EQ(there.at("scenarios").back().at("files"), true);
}

}  // namespace
}  // namespace headrace::cache_bench
