// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace headrace::kv_bench {
namespace {

std::map<std::string, ModelRow> rows_of(const ModelOptions& options) {
  std::map<std::string, ModelRow> rows;
  const Modelled modelled = *model(options);
  for (const ModelRow& row : modelled.rows) rows[row.config] = row;
  return rows;
}

ModelOptions only(const char* workload) { return {.workloads = {workload}, .operations = 1000}; }

TEST(Model, BoundByLatencyTheOrderIsThatOfTheTalk) {
  for (const char* workload : {"A", "B", "C"}) {
    const auto rows = rows_of(only(workload));
    double before = 1;
    for (const char* name : {"Hot-Promote", "3:1", "1:1", "1:3", "MMEM-SSD-0.2", "MMEM-SSD-0.4"}) {
      EXPECT_GT(rows.at(name).slower, before) << workload << " " << name;
      before = rows.at(name).slower;
    }
    EXPECT_LT(rows.at("Hot-Promote").slower, 1.15);
    EXPECT_EQ(rows.at("best share").slow_share, 0);
    EXPECT_GT(rows.at("Hot-Promote").promoted_bytes, 1e9);
  }
}

TEST(Model, BoundByBandwidthInterleavingWins) {
  ModelOptions options = only("C");
  options.threads = 600;
  options.clients = options.threads;
  const auto rows = rows_of(options);
  EXPECT_GT(rows.at("MMEM").served.fast_used, 0.95);
  EXPECT_LT(rows.at("3:1").slower, 1);
  EXPECT_LT(rows.at("1:1").slower, rows.at("3:1").slower);
  for (const auto& [name, row] : rows) {
    EXPECT_LE(rows.at("best share").slower, row.slower * 1.01) << name;
  }
}

TEST(Model, ClientsAskOneThingAtATime) {
  ModelOptions options = only("C");
  options.clients = 1;
  const auto one = rows_of(options);
  options.threads = 1;
  const auto alone = rows_of(options);
  EXPECT_EQ(one.at("MMEM").served.ops_per_second, alone.at("MMEM").served.ops_per_second);
}

// The largest relative deviation from the values that the constants are fitted to.
double lines_off(const Server& server) {
  ModelOptions options = only("C");
  options.server = server;
  const auto rows = rows_of(options);
  return std::max(std::abs(rows.at("3:1").slower / 1.2 - 1),
                  std::abs(rows.at("1:3").slower / 1.5 - 1));
}
double ssd_off(const Server& server) {
  double off = 0;
  for (const char* workload : {"A", "C"}) {
    ModelOptions options = only(workload);
    options.server = server;
    const auto rows = rows_of(options);
    for (const char* name : {"MMEM-SSD-0.2", "MMEM-SSD-0.4"}) {
      off = std::max(off, std::abs(rows.at(name).slower / 1.8 - 1));
    }
  }
  return off;
}

TEST(Model, ItsConstantsAreTheFit) {
  const auto rows = rows_of(only("C"));
  EXPECT_NEAR(7e9 / rows.at("MMEM").served.ops_per_second, kOperationNs, kOperationNs / 100);
  for (const double factor : {0.94, 1.06}) {
    Server server = kFitted;
    server.dependent_lines *= factor;
    server.cpu_ns = kFitted.cpu_ns - (factor - 1) * kFitted.dependent_lines * 98;
    EXPECT_GT(lines_off(server), lines_off(kFitted)) << factor;
    server = kFitted;
    server.ssd_ns *= factor;
    EXPECT_GT(ssd_off(server), ssd_off(kFitted)) << factor;
  }
}

TEST(Model, ClaimsThatAreNotMetAreTold) {
  const Modelled modelled = *model(only("C"));
  std::map<std::string, bool> met;
  for (const Check& check : modelled.checks) {
    met[check.claim] = check.met;
    EXPECT_FALSE(check.found.empty()) << check.claim;
  }
  EXPECT_EQ(met.size(), 9U);
  EXPECT_TRUE(met.at("MMEM ~ Hot-Promote > 3:1 > 1:1 > 1:3 > MMEM-SSD-0.2 > MMEM-SSD-0.4"));
  EXPECT_TRUE(met.at("1:1 1.2 to 1.5 times slower than MMEM"));
  EXPECT_FALSE(met.at("CXL 1.14 times slower than MMEM"));
  EXPECT_FALSE(met.at("1:3 > 1:1 > 3:1 > MMEM beyond about 80 % of DRAM bandwidth"));
}

TEST(Model, TheSameOptionsGiveTheSameDocument) {
  const ModelOptions options = only("A");
  EXPECT_EQ(to_json(*model(options), options).dump(), to_json(*model(options), options).dump());
}

TEST(Model, RefusesInWords) {
  EXPECT_EQ(model(only("E")).error().message, "no workload 'E'; there are A, B, C, D");
  ModelOptions options;
  options.machine = "one-node";
  EXPECT_EQ(model(options).error().code, ErrorCode::absent);
  options = {};
  options.records = 1;
  EXPECT_EQ(model(options).error().message, "records 1: give 1000 to 100000000000");
}

}  // namespace
}  // namespace headrace::kv_bench
