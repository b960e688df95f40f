// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/claims.h"

#include <gtest/gtest.h>

#include <utility>

namespace headrace::kv_bench {
namespace {

std::vector<ModelRow> rows_with(double hot, double even, double cxl) {
  std::vector<ModelRow> rows;
  for (const auto& [config, slower] : {std::pair{"MMEM", 1.0},
                                       {"MMEM-SSD-0.2", 1.7},
                                       {"MMEM-SSD-0.4", 1.9},
                                       {"3:1", 1.2},
                                       {"1:1", even},
                                       {"1:3", 1.5},
                                       {"CXL", cxl},
                                       {"Hot-Promote", hot}}) {
    rows.push_back({.config = config, .workload = "A", .slower = slower});
  }
  return rows;
}

bool all_met(const std::vector<Check>& checks) { return std::ranges::all_of(checks, &Check::met); }

TEST(Claims, AreMetWithinFifteenPerCent) {
  EXPECT_TRUE(all_met(check_claims(rows_with(1.05, 1.35, 1.14))));
  const auto checks = check_claims(rows_with(1.05, 1.35, 1.4));
  EXPECT_FALSE(checks.back().met);
  EXPECT_EQ(checks.back().found, "1.40");
  EXPECT_EQ(checks.back().claim, "CXL 1.14 times slower than MMEM");
}

TEST(Claims, TheOrderNamesWhatIsOutOfIt) {
  const Check out = check_claims(rows_with(1.05, 1.55, 1.14)).front();
  EXPECT_FALSE(out.met);
  EXPECT_EQ(out.found, "1:1 is not faster than 1:3");
  const Check far = check_claims(rows_with(1.17, 1.35, 1.14)).front();
  EXPECT_FALSE(far.met);
  EXPECT_EQ(far.found, "Hot-Promote is more than 15 % slower than MMEM");
}

TEST(Claims, FittedConstants_PredictNothingOfAnyWorkload) {
  for (const char* workload : {"A", "C"}) {
    auto rows = rows_with(1.05, 1.35, 1.14);
    for (ModelRow& row : rows) row.workload = workload;
    for (const Check& check : check_claims(rows)) {
      const bool of_promotion = check.claim.starts_with("Hot-Promote");
      EXPECT_EQ(check.predicted, of_promotion || check.claim.starts_with("CXL")) << check.claim;
    }
  }
}

Tier flat(unsigned node, double ns, double best) {
  return {NodeId{node}, *LoadedCurve::of({{best / 2, ns}, {best, ns * 4}})};
}

TEST(Claims, ReversalIsFoundWhereTheCurvesHaveIt) {
  const Workload& reads = *find_workload("C");
  // A second memory as good as the first: each share of it helps once the first nears saturation.
  const std::vector<Tier> even = {flat(0, 100, 60e9), flat(1, 101, 600e9)};
  EXPECT_TRUE(check_reversal(reads, {}, even).met);
  const std::vector<Tier> far = {flat(0, 100, 60e9), flat(1, 3000, 6e9)};
  const Check never = check_reversal(reads, {}, far);
  EXPECT_FALSE(never.met);
  EXPECT_EQ(never.found, "3:1 > MMEM never, 1:1 > 3:1 never, 1:3 > 1:1 never");
}

}  // namespace
}  // namespace headrace::kv_bench
