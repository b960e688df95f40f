// SPDX-License-Identifier: Apache-2.0
#include "headrace/findings.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr auto kNone = std::uint64_t{0};

Row row(std::string experiment, std::vector<std::pair<std::string, ParameterValue>> parameters,
        double value, double spread = 0) {
  Row made{.experiment = std::move(experiment), .parameters = std::move(parameters)};
  made.samples = {value * (1 - spread), value, value * (1 + spread)};
  made.value = summarize(made.samples);
  return made;
}

Row copy_row(const std::string& engine, std::uint64_t bytes, std::uint64_t threads, double rate,
             double spread = 0) {
  return row("copy",
             {{"engine", engine},
              {"cpu_node", kNone},
              {"from", kNone},
              {"to", std::uint64_t{8}},
              {"bytes", bytes},
              {"threads", threads},
              {"state", "cold"}},
             rate, spread);
}

// The rate of an engine with these costs, for copies of `bytes` by each thread.
double rate_of(double latency_ns, double bandwidth, std::uint64_t bytes, std::uint64_t threads) {
  const double all = static_cast<double>(bytes * threads);
  return all / (latency_ns * 1e-9 + all / bandwidth);
}

TEST(CopyFits, FindTheCostsBehindTheRates) {
  Profile profile;
  for (const std::uint64_t threads : {1, 4}) {
    for (const std::uint64_t bytes : {1024, 65536, 1 << 20, 64 << 20}) {
      profile.rows.push_back(copy_row("cpu", bytes, threads, rate_of(700, 12e9, bytes, threads)));
    }
  }
  profile.rows.push_back(copy_row("memcpy", 1024, 1, 1e9));
  profile.rows.push_back(Row{.experiment = "copy", .reason = "left out"});
  for (const std::uint64_t bytes : {1024, 65536, 1 << 20, 64 << 20}) {  // divided copies
    profile.rows.push_back(copy_row("cpu", bytes, 4, 5e9));
    profile.rows.back().parameters.emplace_back("work", "divided");
  }
  const auto fits = copy_fits(profile);
  ASSERT_EQ(fits.size(), 2u) << "two sizes are no line";
  for (const CopyFit& fit : fits) {
    EXPECT_EQ(fit.engine, "cpu");
    EXPECT_EQ(fit.series.to, 8u);
    EXPECT_NEAR(fit.latency_ns, 700, 1e-3);
    EXPECT_NEAR(fit.bandwidth / 12e9, 1, 1e-9);
    EXPECT_EQ(fit.points, 4u);
    EXPECT_LT(fit.largest_error, 1e-9);
  }
  EXPECT_EQ(fits[1].series.threads, 4u);
}

TEST(CopyFits, SayHowWrongTheyAreAndHaveNoNegativeLatency) {
  Profile profile;
  // Small copies are faster per byte: from a cache.
  profile.rows = {copy_row("cpu", 1024, 1, 40e9), copy_row("cpu", 65536, 1, 20e9),
                  copy_row("cpu", 1 << 20, 1, 10e9)};
  const auto fits = copy_fits(profile);
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_EQ(fits[0].latency_ns, 0);
  EXPECT_GT(fits[0].bandwidth, 10e9);
  EXPECT_LT(fits[0].bandwidth, 40e9);
  EXPECT_GT(fits[0].largest_error, 0.3);
  EXPECT_GE(fits[0].largest_error, fits[0].median_error);
}

TEST(Crossovers, AreWhereAnotherEngineIsClearlyFastest) {
  Profile profile;
  const auto add = [&](std::uint64_t bytes, double memcpy_rate, double cpu_rate, double spread) {
    profile.rows.push_back(copy_row("memcpy", bytes, 1, memcpy_rate, spread));
    profile.rows.push_back(copy_row("cpu", bytes, 1, cpu_rate, spread));
    profile.rows.push_back(copy_row("avx2_nt", bytes, 1, 99e9));  // programs cannot choose it
  };
  add(64, 10e9, 9e9, 0.01);
  add(4096, 10e9, 10.1e9, 0.05);  // within noise: no change
  add(65536, 10e9, 15e9, 0.01);
  add(1 << 20, 10e9, 9.9e9, 0.05);  // within noise: no change
  const auto found = crossovers(profile);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].engine, "memcpy");
  EXPECT_EQ(found[0].bytes, 64_B);
  EXPECT_EQ(found[1].engine, "cpu");
  EXPECT_EQ(found[1].bytes, 64_KiB);
}

// Points of bandwidth in GB/s and latency in ns, with a relative spread of latency and ever shorter
// pauses.
Profile loaded_curve(const std::vector<std::pair<double, double>>& points, double spread = 0) {
  Profile profile;
  std::uint64_t pause = 100 * points.size();
  for (const auto& [bandwidth, latency] : points) {
    Row point = row("loaded",
                    {{"cpu_node", kNone},
                     {"memory_node", std::uint64_t{1}},
                     {"traffic_cpu_node", kNone},
                     {"traffic_memory_node", std::uint64_t{1}},
                     {"mix", "read"},
                     {"delay_ns", pause -= 100}},
                    latency, spread);
    point.details["bandwidth"] = bandwidth * 1e9;
    profile.rows.push_back(std::move(point));
  }
  return profile;
}

TEST(Knees, AreWhereBandwidthPerLatencyIsLargest) {
  Profile profile =
      loaded_curve({{1, 100}, {10, 105}, {20, 115}, {28, 150}, {30, 400}, {30.5, 900}});
  const auto found = knees(profile);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].bandwidth, 28e9);
  EXPECT_EQ(found[0].latency_ns, 150);
  EXPECT_EQ(found[0].idle_ns, 100);
  EXPECT_EQ(found[0].memory_node, 1u);
  EXPECT_DOUBLE_EQ(*found[0].bandwidth_at_1_5, 28e9);
  EXPECT_DOUBLE_EQ(*found[0].bandwidth_at_2, 28.4e9) << "a fifth of the way from 150 to 400 ns";
  EXPECT_EQ(found[0].threads, 0u);
  Profile of_threads = profile;
  for (Row point : profile.rows) {
    point.parameters.emplace_back("threads", std::uint64_t{4});
    of_threads.rows.push_back(std::move(point));
  }
  const auto both = knees(of_threads);
  ASSERT_EQ(both.size(), 2u) << "by four threads, and by all";
  EXPECT_EQ(both[1].threads, 4u);
  // A latency measured without traffic counts if a row has it.
  profile.rows[2].details["idle"] = 80;
  EXPECT_EQ(knees(profile)[0].idle_ns, 80);
  EXPECT_DOUBLE_EQ(*knees(profile)[0].bandwidth_at_1_5, 20e9 + 8e9 / 7) << "120 ns";
  for (Row& point : profile.rows) point.details["idle"] = 1000;
  EXPECT_FALSE(knees(profile)[0].bandwidth_at_2) << "never so slow";
  profile.rows.resize(3);
  EXPECT_TRUE(knees(profile).empty()) << "three points are no curve";
}

// A point of few mappings has no spread: a larger one at more traffic proves nothing.
TEST(Knees, PointsThatAreNoisyOrOfFewMappings_DoNotCount) {
  for (const char* flag : {"noisy", "few"}) {
    SCOPED_TRACE(flag);
    Profile profile = loaded_curve({{1, 100}, {10, 105}, {20, 115}, {28, 150}, {30, 400}});
    profile.rows[3].add_flag(flag);
    ASSERT_EQ(knees(profile).size(), 1u) << "of four other points";
    EXPECT_EQ(knees(profile)[0].bandwidth, 20e9);
    profile.rows[0].add_flag(flag);
    EXPECT_TRUE(knees(profile).empty()) << "three points are no curve";
  }
}

TEST(Knees, LatencyThatFallsAsTrafficGrows_HasNone) {
  const std::vector<std::pair<double, double>> points = {
      {1, 100}, {3, 210}, {10, 110}, {20, 155}, {30, 230}};
  EXPECT_TRUE(knees(loaded_curve(points, 0.05)).empty()) << "at 3 GB/s something else ran";
  EXPECT_EQ(knees(loaded_curve(points, 0.5)).size(), 1u) << "intervals overlap";
}

TEST(Knees, SaturatedTrafficThatReachesLess_KeepsTheOrderOfTheMarks) {
  // Beyond the peak, more traffic reaches less bandwidth, and loads take longer still.
  const auto found = knees(loaded_curve({{1, 100}, {20, 110}, {30, 160}, {26, 300}, {25, 400}}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_DOUBLE_EQ(*found[0].bandwidth_at_1_5, 28e9);
  EXPECT_DOUBLE_EQ(*found[0].bandwidth_at_2, 30e9);
}

TEST(CacheSteps, AreNamedByTheCachesOfTheMachine) {
  Profile profile;
  Node node{.id = NodeId{0}, .kind = NodeKind::dram};
  node.cpus = {0, 1};
  profile.machine.nodes = {node};
  profile.machine.caches = {{.level = 1, .size = 32_KiB, .cpus = {0}},
                            {.level = 2, .size = 1_MiB, .cpus = {0}},
                            {.level = 1, .size = 64_KiB, .cpus = {7}}};
  const auto add = [&](Bytes bytes, double ns, const char* window = "all") {
    profile.rows.push_back(row("latency",
                               {{"cpu_node", kNone},
                                {"memory_node", kNone},
                                {"bytes", bytes.value},
                                {"window", window},
                                {"pages", "huge"}},
                               ns));
  };
  add(64_MiB, 90);
  add(4_KiB, 1);
  add(32_KiB, 1.2);
  add(48_KiB, 2);  // between two steps
  add(128_KiB, 4);
  add(8_MiB, 80);
  add(8_MiB, 1, "4096");
  const auto steps = cache_steps(profile);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].name, "L1");
  EXPECT_EQ(steps[0].to, 32_KiB);
  EXPECT_NEAR(steps[0].latency_ns, 1.1, 1e-9);
  EXPECT_EQ(steps[1].name, "L2");
  EXPECT_EQ(steps[1].from, 128_KiB);
  EXPECT_EQ(steps[2].name, "memory");
  EXPECT_EQ(steps[2].latency_ns, 85);
}

}  // namespace
}  // namespace headrace
