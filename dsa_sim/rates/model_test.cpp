// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/rates/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace headrace::dsa_rates {
namespace {

ParameterValue number(std::uint64_t value) { return value; }

ParameterChoices part(const char* name) {
  return {{"part", name}, {"bytes", std::vector{number(4096), number(1 << 20), number(1 << 30)}}};
}

std::vector<Row> modelled(const std::vector<ParameterChoices>& selections) {
  auto rows = model_dsa(*Machine::load("xeon-max"), selections, 1);
  EXPECT_TRUE(rows) << rows.error().message;
  return *std::move(rows);
}

TEST(ModelDsa, EveryRowHasARateOrAReason) {
  const auto rows = modelled(
      {part("submission"), part("threads"), part("route"), part("queue"), part("interference")});
  for (const Row& row : rows) {
    SCOPED_TRACE(row.key());
    EXPECT_EQ(row.basis, Basis::modelled);
    EXPECT_NE(row.value.has_value(), !row.reason.empty());
    EXPECT_TRUE(row.flags.empty() || !row.value) << "one sample of a model is all";
    if (row.value) {
      EXPECT_GT(row.value->median, 0);
      EXPECT_GE(row.details.at("copies"), 1);
    }
  }
}

TEST(ModelDsa, CoresAreThoseOfThisHostAndMeasured) {
  const auto rows =
      modelled({{{"part", "cpu"}, {"bytes", std::vector{number(4096), number(65536)}}}});
  std::size_t cores = 0;
  for (const Row& row : rows) {
    if (row.basis != Basis::measured) continue;
    ++cores;
    EXPECT_EQ(row.word("method"), "cores");
    EXPECT_TRUE(row.value) << row.reason;
  }
  EXPECT_EQ(cores, 2U) << "one per size";
  EXPECT_EQ(rows.size(), 2U * 3U) << "and a device with one copy in flight and with many";
}

TEST(ModelDsa, TheSameRunGivesTheSameRates) {
  const auto first = modelled({part("submission"), part("route"), part("interference")});
  const auto second = modelled({part("submission"), part("route"), part("interference")});
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].samples, second[i].samples);
}

// Fuerst 2024, 3.2.1 to 3.2.3, in what the text says of the figures.
TEST(ModelDsa, FollowsThePublishedShapes) {
  const auto rows = modelled({part("submission"), part("threads"), part("route")});
  const auto rate = [&](std::map<std::string, ParameterValue> wanted) {
    const auto found = std::ranges::find_if(rows, [&](const Row& row) {
      return std::ranges::all_of(wanted, [&](const auto& each) {
        const ParameterValue* own = row.parameter(each.first);
        return own != nullptr && *own == each.second;
      });
    });
    return found->value->median;
  };
  const auto by = [&](const char* method, std::uint64_t at_once, Bytes bytes) {
    return rate({{"method", method}, {"at_once", at_once}, {"bytes", bytes.value}});
  };
  EXPECT_GT(by("batch", 50, 4_KiB), 3 * by("single", 1, 4_KiB)) << "batches lead at small sizes";
  EXPECT_NEAR(by("batch", 50, 1_MiB) / by("single", 1, 1_MiB), 1, 0.05) << "and not from 1 MiB on";
  const auto threads = [&](std::uint64_t count) {
    return rate({{"part", "threads"}, {"threads", count}, {"bytes", (1_MiB).value}});
  };
  EXPECT_GT(threads(12), threads(1)) << "1 MiB even gains by threads";
  const auto route = [&](const char* policy, std::uint64_t to) {
    return rate({{"route", policy}, {"to", to}});
  };
  EXPECT_GT(route("brute_force", 15), route("smart", 15));
  EXPECT_NEAR(route("brute_force", 8) / route("smart", 8), 1, 0.05);
}

TEST(ModelDsa, StopsBetweenPoints) {
  const ExperimentContext context{.stop = [asked = 0]() mutable { return ++asked > 3; }};
  const auto rows = model_dsa(*Machine::load("xeon-max"), {part("queue")}, 1, context);
  ASSERT_TRUE(rows);
  EXPECT_GT(std::ranges::count_if(*rows, [](const Row& row) { return row.has_flag("stopped"); }),
            0);
}

TEST(ModelDsa, RefusesWhatMakesNoSense) {
  Machine machine = *Machine::load("xeon-max");
  EXPECT_EQ(model_dsa(machine, {{{"part", "speed"}}}).error().code, ErrorCode::invalid);
  EXPECT_EQ(model_dsa(machine, {part("queue")}, 0).error().code, ErrorCode::invalid);
  const auto odd =
      modelled({{{"part", "submission"}, {"bytes", std::vector{number(0), number(3ULL << 30)}}}});
  ASSERT_FALSE(odd.empty());
  for (const Row& row : odd) {
    EXPECT_NE(row.reason.find("ask for 1 byte to 2 GiB"), std::string::npos) << row.reason;
  }
  machine.engines.clear();
  EXPECT_EQ(model_dsa(machine).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace::dsa_rates
