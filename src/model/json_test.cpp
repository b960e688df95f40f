// SPDX-License-Identifier: Apache-2.0
#include "model/json.h"

#include <gtest/gtest.h>

#include "core/text/json.h"
#include "model/model_testing.h"

namespace headrace {
namespace {

std::string machine() {
  Machine made = two_memories();
  made.model = R"({"ceilings": [{"name": "DDR", "kind": "controller", "to": [0],
    "bandwidth": 100e9, "uncertainty": 0.1, "basis": "fitted", "source": "x",
    "fitted_to": ["figures"]}]})";
  return made.to_json();
}

constexpr std::string_view kFlows = R"([{"name": "a", "threads": 64, "initiator": 0,
  "accesses": [{"node": 0, "kind": "read", "bytes": 1}], "in_flight_bytes": 2048},
  {"name": "b", "initiator": 0, "cpus": "0-3",
   "accesses": [{"node": 1, "kind": "store", "bytes": 2, "latency_ns": 200}],
   "in_flight_bytes": 1000, "in_flight_uncertainty": 0.1, "cap_bytes_per_second": 1e9}])";

TEST(ModelJsonTest, SameTexts_GiveTheSameBytesWithTheBases) {
  const auto solver = JsonSolver::create(machine());
  ASSERT_TRUE(solver.has_value()) << solver.error().message;
  const auto answer = solver->solve(kFlows);
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(*solver->solve(kFlows), *answer);
  EXPECT_EQ(*JsonSolver::create(machine())->solve(kFlows), *answer);
  const auto document = *parse_document(*answer);
  EXPECT_EQ(document["bound"], false);
  EXPECT_EQ(document["flows"][0]["limit"], "DDR");
  EXPECT_NEAR(document["flows"][0]["rate"].get<double>(), 100e9, 2e9);
  EXPECT_LT(document["flows"][0]["rate_low"], 93e9);
  EXPECT_GT(document["flows"][0]["rate_high"], 107e9);
  EXPECT_EQ(document["flows"][1]["limit"], "core: compute");
  EXPECT_EQ(document["ceilings"][0]["fitted_to"][0], "figures");
  EXPECT_EQ(document["latencies"].size(), 1u);
  EXPECT_EQ(document["latencies"][0]["basis"], "assumed");
}

TEST(ModelJsonTest, Mistakes_HaveTheirLocation) {
  for (const auto& [flows, message] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "flows: must have at least one flow"},
           {R"([{"name": "a"}])", "[0].initiator: is missing"},
           {R"({"flows": [{"name": "a", "engine": "x"}]})", "flows[0].engine: no engine 'x'"},
           {R"([{"name": "a", "initiator": 0, "accesses": [{"node": 0, "kind": "look",
               "bytes": 1}]}])",
            "[0].accesses[0].kind: no access 'look'; say read, write or store"},
           {R"([{"name": "a", "initiator": 0, "accesses": [{"node": 0, "kind": "read",
               "bytes": 1, "side_cache_hits": [0.5, 0.6, 0.7]}]}])",
            "[0].accesses[0].side_cache_hits: must be a number, or [value, low, high]"}}) {
    const auto answer = JsonSolver::create(machine())->solve(flows);
    ASSERT_FALSE(answer.has_value()) << flows;
    EXPECT_EQ(answer.error().message, message);
  }
}

}  // namespace
}  // namespace headrace
