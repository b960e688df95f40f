#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/measure.h"
#include "measure/dsa_testing.h"

namespace headrace {
namespace {

std::vector<DsaRow> emulated(std::vector<std::string> experiments) {
  const DsaBenchOptions options{
      .experiments = std::move(experiments), .emulated = true, .sizes = {4_KiB, 1_MiB}};
  auto rows = bench_dsa(test::xeon_max(), options);
  EXPECT_TRUE(rows) << rows.error().message;
  return *std::move(rows);
}

TEST(BenchDsa, EveryRowHasARateOrAReason) {
  const auto rows = emulated({"submission", "threads", "route", "queue", "interference"});
  for (const DsaRow& row : rows) {
    EXPECT_EQ(row.basis, "modelled");
    EXPECT_EQ(row.machine, "xeon-max");
    EXPECT_NE(row.bytes_per_second.has_value(), !row.reason.empty());
    EXPECT_FALSE(row.spread) << "a model has none";
    if (row.bytes_per_second) {
      EXPECT_GT(row.bytes_per_second->value, 0);
    }
  }
}

TEST(BenchDsa, CoresAreThoseOfThisHost) {
  const auto rows = emulated({"cpu"});
  const auto cores = std::ranges::count(rows, "hardware", &DsaRow::basis);
  EXPECT_EQ(cores, 2) << "one per size";
  for (const DsaRow& row : rows) {
    if (row.basis != "hardware") continue;
    EXPECT_EQ(row.method, "cores");
    EXPECT_NE(row.machine, "xeon-max");
  }
}

TEST(BenchDsa, TheSameRunGivesTheSameRates) {
  const auto first = emulated({"submission", "route", "interference"});
  const auto second = emulated({"submission", "route", "interference"});
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].bytes_per_second, second[i].bytes_per_second);
  }
}

// Fuerst 2024, 3.2.1 to 3.2.3, in what the text says of the figures.
TEST(BenchDsa, FollowsThePublishedShapes) {
  const auto rows = emulated({"submission", "threads", "route"});
  const auto rate = [&](auto matches) {
    return std::ranges::find_if(rows, matches)->bytes_per_second->value;
  };
  const auto by = [&](const char* method, unsigned at_once, Bytes bytes) {
    return rate([=](const DsaRow& row) {
      return row.method == method && row.at_once == at_once && row.bytes == bytes;
    });
  };
  EXPECT_GT(by("batch", 50, 4_KiB), 3 * by("single", 1, 4_KiB)) << "batches lead at small sizes";
  EXPECT_NEAR(by("batch", 50, 1_MiB) / by("single", 1, 1_MiB), 1, 0.05) << "and not from 1 MiB on";
  const auto threads = [&](unsigned count) {
    return rate([=](const DsaRow& row) {
      return row.experiment == "threads" && row.threads == count && row.bytes == 1_MiB;
    });
  };
  EXPECT_GT(threads(12), threads(1)) << "1 MiB even gains by threads";
  const auto route = [&](const char* policy, unsigned to) {
    return rate([=](const DsaRow& row) { return row.route == policy && row.to == NodeId{to}; });
  };
  EXPECT_GT(route("brute_force", 15), route("smart", 15));
  EXPECT_NEAR(route("brute_force", 8) / route("smart", 8), 1, 0.05);
}

TEST(BenchDsa, StopsBetweenPoints) {
  const ExperimentContext context{.stop = [asked = 0]() mutable { return ++asked > 3; }};
  const auto rows = bench_dsa(test::xeon_max(), {.emulated = true}, context);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 3U);
}

TEST(BenchDsa, RefusesWhatMakesNoSense) {
  const auto code = [](const Machine& machine, const DsaBenchOptions& options) {
    return bench_dsa(machine, options).error().code;
  };
  EXPECT_EQ(code(test::xeon_max(), {.experiments = {"speed"}, .emulated = true}),
            ErrorCode::invalid);
  EXPECT_EQ(code(test::xeon_max(), {.emulated = true, .sizes = {0_B}}), ErrorCode::invalid);
  EXPECT_EQ(code(test::xeon_max(), {.emulated = true, .sizes = {3_GiB}}), ErrorCode::invalid);
  Machine bare = test::xeon_max();
  bare.engines.clear();
  EXPECT_EQ(code(bare, {.emulated = true}), ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace
