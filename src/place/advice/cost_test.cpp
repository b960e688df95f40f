// SPDX-License-Identifier: Apache-2.0
#include "headrace/advice/cost.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

namespace headrace {
namespace {

// Computed by hand from two equal times.
TEST(CostTest, ServersAndSaving) {
  struct {
    ServerCost cost;
    double servers, saving;
  } const cases[] = {
      {{10, 8, 2, 1.1}, 67.29, 25.98}, {{10, 8, 2, 1.0}, 67.29, 32.71},
      {{10, 4, 2, 1.1}, 70.59, 22.35}, {{10, 8, 1, 1.1}, 50.70, 44.23},
      {{5, 4, 2, 1.1}, 68.09, 25.11},  {{3, 2, 2, 1.1}, 72.73, 20.00},
  };
  for (const auto& [cost, servers, saving] : cases) {
    const auto result = server_saving(cost);
    EXPECT_NEAR(result->servers * 100, servers, 0.005);
    EXPECT_NEAR(*result->saving * 100, saving, 0.005);
    EXPECT_DOUBLE_EQ(result->break_even * result->servers, 1);
  }
}

// The two times that the formula equates.
TEST(CostTest, BothTakeTheSameTime) {
  EXPECT_TRUE(rc::check([] {
    const int dram = *rc::gen::inRange(11, 200);
    const ServerCost cost = {.dram_speed = dram / 10.0,
                             .cxl_speed = *rc::gen::inRange(10, dram + 1) / 10.0,
                             .capacity_ratio = *rc::gen::inRange(1, 80) / 10.0};
    const auto saving = server_saving(cost);
    RC_ASSERT(saving.has_value());
    const double n = saving->servers, d = cost.dram_speed, c = cost.capacity_ratio;
    const double base = 1 / d - 1, with = n / d + n / (c * cost.cxl_speed) - n - n / c;
    RC_ASSERT(std::abs(base - with) < 1e-9);
  }));
}

TEST(CostTest, MemoryAsSlowAsTheSsdSavesNoServer) {
  EXPECT_DOUBLE_EQ(server_saving({.cxl_speed = 1})->servers, 1);
}

TEST(CostTest, EachInputIsChangedBothWays) {
  const auto changes = sensitivity({.cost_ratio = 1.1}, 0.1);
  ASSERT_EQ(changes->size(), 8u);
  EXPECT_EQ(changes->front().name, "dram_speed");
  EXPECT_DOUBLE_EQ(changes->front().value, 9);
  EXPECT_NEAR(*changes->back().result->saving, 1 - 0.6729 * 1.21, 1e-4);
  for (const CostChange& each : *changes) EXPECT_TRUE(each.result && each.reason.empty());
}

TEST(CostTest, ChangeThatLeavesTheModel_HasAReason) {
  const auto changes = sensitivity({.dram_speed = 10, .cxl_speed = 10}, 0.1);
  ASSERT_EQ(changes->size(), 6u);
  std::size_t without = 0;
  for (const CostChange& each : *changes) {
    EXPECT_NE(each.result.has_value(), !each.reason.empty());
    if (each.result) continue;
    ++without;
    EXPECT_EQ(each.reason, each.name == "dram_speed"
                               ? "CXL memory is no faster than DRAM; give at most 9, not 10"
                               : "CXL memory is no faster than DRAM; give at most 10, not 11");
  }
  EXPECT_EQ(without, 2u) << "slower DRAM, and faster CXL memory";
}

TEST(CostTest, UnknownPrices_SaveNothingKnown) {
  EXPECT_FALSE(server_saving({})->saving);
  EXPECT_DOUBLE_EQ(server_saving({})->break_even, 1 / server_saving({})->servers);
  EXPECT_EQ(sensitivity({})->size(), 6u) << "no cost ratio to change";
  EXPECT_FALSE(instance_gain({})->revenue);
}

TEST(CostTest, CxlMemoryFasterThanDram_IsInvalid) {
  EXPECT_TRUE(server_saving({.dram_speed = 10, .cxl_speed = 10}));
  EXPECT_EQ(server_saving({.dram_speed = 10, .cxl_speed = 12}).error().message,
            "CXL memory is no faster than DRAM; give at most 10, not 12");
}

TEST(CostTest, StrandedCpusSoldAtADiscount) {
  const auto gain = instance_gain({.instance_gib = 4, .server_gib = 3, .discount = 0.2});
  EXPECT_DOUBLE_EQ(gain->stranded, 0.25);
  EXPECT_NEAR(*gain->revenue, 0.267, 0.0005);
  EXPECT_DOUBLE_EQ(gain->cxl_gib, 1);
  EXPECT_EQ(instance_gain({.instance_gib = 3, .server_gib = 4, .discount = 0.2})->revenue, 0);
}

TEST(CostTest, RefusesWhatMakesNoSense) {
  for (const double bad : {-1.0, 0.0, std::nan(""), HUGE_VAL, 1e308, 1e-308}) {
    EXPECT_EQ(server_saving({.dram_speed = bad}).error().code, ErrorCode::invalid);
    EXPECT_EQ(server_saving({.cxl_speed = bad}).error().code, ErrorCode::invalid);
    EXPECT_EQ(server_saving({.capacity_ratio = bad}).error().code, ErrorCode::invalid);
    EXPECT_EQ(server_saving({.cost_ratio = bad}).error().code, ErrorCode::invalid);
    EXPECT_EQ(sensitivity({}, bad).error().code, ErrorCode::invalid);
    EXPECT_EQ(instance_gain({.instance_gib = bad}).error().code, ErrorCode::invalid);
    EXPECT_EQ(instance_gain({.server_gib = bad}).error().code, ErrorCode::invalid);
  }
  for (const double bad : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(instance_gain({.discount = bad}).error().code, ErrorCode::invalid);
  }
  EXPECT_EQ(server_saving({.dram_speed = 1}).error().message,
            "DRAM is no faster than SSD; give more than 1");
  EXPECT_EQ(server_saving({.cost_ratio = 1e308}).error().message,
            "the ratio of costs is 1e+308; give 1e-06 to 1000000");
}

}  // namespace
}  // namespace headrace
