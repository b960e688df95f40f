// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/simulated/simulate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headrace/machine.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

std::string xeon_max() {
  static const std::string document = Machine::load("xeon-max")->to_json();
  return document;
}

// Two tiles and 64 MiB for each; operators as fast as 20 GB/s.
Json small(std::string_view mode) {
  return {{"mode", mode},
          {"working_set_bytes", 128 << 20},
          {"passes", 2},
          {"groups",
           {{{"cpus", 0}, {"slow", 0}, {"fast", 8}}, {{"cpus", 1}, {"slow", 1}, {"fast", 9}}}},
          {"threads", 4},
          {"vectors", "built"},
          {"operators",
           {{"columns",
             {{{"column", "l_shipdate"}, {"bytes_per_cycle", 8}},
              {{"column", "l_discount"}, {"bytes_per_cycle", 8}},
              {{"column", "l_quantity"}, {"bytes_per_cycle", 8}},
              {{"column", "l_extendedprice"}, {"bytes_per_cycle", 8}}}},
            {"cycles_per_second", 2.5e9},
            {"vector_bytes", 16}}}};
}

Json simulated(const Json& options) {
  const auto report = simulate_query(xeon_max(), options.dump());
  EXPECT_TRUE(report.has_value()) << report.error().message;
  return report ? Json::parse(*report) : Json();
}

TEST(SimulatedQuery, SameOptions_GiveTheSameBytes) {
  const auto first = simulate_query(xeon_max(), small("prefetch").dump());
  const auto second = simulate_query(xeon_max(), small("prefetch").dump());
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(*first, *second);
  Json other = small("prefetch");
  other["seed"] = 2;
  EXPECT_NE(*first, *simulate_query(xeon_max(), other.dump()));
}

TEST(SimulatedQuery, Prefetch_CopiesEachByteOnceAndHitsAfterwards) {
  const Json report = simulated(small("prefetch"));
  ASSERT_EQ(report["passes"].size(), 2U);
  const double bytes = report["working_set_bytes"];
  EXPECT_GT(bytes, 0.9 * (128 << 20));
  double copied = 0;
  for (const auto& [name, by] : report["engines"].items()) copied += by.get<double>();
  EXPECT_NEAR(copied, bytes, 0.01 * bytes);
  EXPECT_EQ(report["cache"]["failures"], 0);
  EXPECT_LE(report["passes"][1]["seconds"], report["passes"][0]["seconds"]);
  EXPECT_FALSE(report["interrupted"]);
  EXPECT_TRUE(report["upper_bound"].is_boolean());
}

TEST(SimulatedQuery, LargeChunks_StayInACacheThatHasSpace) {
  Json options = small("prefetch");
  options["groups"] = {{{"cpus", 0}, {"slow", 0}, {"fast", 8}}};
  options["working_set_bytes"] = std::uint64_t{1} << 30;
  options["chunk_bytes"] = 16 << 20;
  const Json report = simulated(options);
  EXPECT_EQ(report["passes"][1]["waited_seconds"], 0);
}

TEST(SimulatedQuery, Direct_UsesNoEngine) {
  const Json direct = simulated(small("direct"));
  EXPECT_TRUE(direct["engines"].empty());
  EXPECT_TRUE(direct["cache"].is_null());
  const Json resident = simulated(small("resident"));
  EXPECT_EQ(direct["blocks"], resident["blocks"]);
  EXPECT_LT(resident["seconds"], direct["seconds"]);
}

TEST(SimulatedQuery, TwoStages_UseTheCoresOfBoth) {
  Json options = small("resident");
  options["threads"] = 8;
  const double one = simulated(options)["seconds"];
  options["threads"] = 6;
  options["aggregators"] = 2;
  const Json report = simulated(options);
  EXPECT_EQ(report["threads_per_group"], 8);
  EXPECT_EQ(report["blocks"], simulated(small("resident"))["blocks"]);
  const double two = report["seconds"];
  // Half of the bytes are filtered; the two threads that aggregate the rest hold the six up.
  EXPECT_GT(two, 1.5 * one);
  options["threads"] = 4;
  options["aggregators"] = 4;
  EXPECT_LT(simulated(options)["seconds"], 1.2 * one);
}

TEST(SimulatedQuery, CopyingCores_AreAnEngineToo) {
  Json options = small("prefetch");
  options["engine"] = "cpu";
  options["route"] = "one";
  const Json report = simulated(options);
  EXPECT_EQ(report["cache"]["failures"], 0);
  EXPECT_EQ(report["passes"].size(), 2U);
}

TEST(SimulatedQuery, CacheModeWithoutSideCache_IsUnsupported) {
  const auto refused = simulate_query(xeon_max(), small("cache").dump());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST(SimulatedQuery, ColumnsLargerThanTheirNode_AreExhausted) {
  Json options = small("direct");
  options["working_set_bytes"] = std::uint64_t{100} << 30;
  const auto refused = simulate_query(xeon_max(), options.dump());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_NE(refused.error().message.find("do not fit on node 0"), std::string::npos);
}

TEST(SimulatedQuery, Stop_EndsWithTheCompletePasses) {
  Json options = small("direct");
  options["passes"] = 1000;
  options["chunk_bytes"] = 4096;
  int looks = 0;
  std::size_t total = 0;
  const auto report =
      simulate_query(xeon_max(), options.dump(),
                     {.stop = [&] { return ++looks > 2; },
                      .progress = [&](std::size_t, std::size_t all) { total = all; }});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const Json read = Json::parse(*report);
  EXPECT_TRUE(read["interrupted"]);
  EXPECT_LT(read["passes"].size(), 1000U);
  EXPECT_GT(total, 0U);
}

}  // namespace
}  // namespace headrace
