// SPDX-License-Identifier: Apache-2.0
// The page of counts, which tests/python/extension/test_metrics.py gives to Prometheus' parser too.
#include <gtest/gtest.h>

#include "headrace/cache/observe.h"

namespace headrace {
namespace {

bool has_line(const std::string& page, const std::string& line) {
  return ("\n" + page).find("\n" + line + "\n") != std::string::npos;
}

TEST(OpenMetrics, CountsOfACache_AreSamplesWithItsName) {
  CacheStats stats;
  stats.hits = 12;
  stats.bytes_used = 5_KiB;
  stats.wait_time = {.count = 3, .p50 = 1500, .p90 = 2'000'000, .p99 = 3'000'000'000};
  const std::string page = openmetrics(stats, "a \"b\"\\\n");
  const std::string label = R"(cache="a \"b\"\\\n")";
  EXPECT_TRUE(has_line(page, "# TYPE headrace_cache_accesses counter")) << page;
  EXPECT_TRUE(has_line(page, "headrace_cache_accesses_total{" + label + ",state=\"ready\"} 12"));
  EXPECT_TRUE(has_line(page, "# UNIT headrace_cache_used_bytes bytes"));
  EXPECT_TRUE(has_line(page, "headrace_cache_used_bytes{" + label + "} 5120"));
  EXPECT_TRUE(
      has_line(page, "headrace_cache_wait_seconds{" + label + ",quantile=\"0.5\"} 1.5e-06"));
  EXPECT_TRUE(has_line(page, "headrace_cache_wait_seconds_count{" + label + "} 3"));
  EXPECT_TRUE(page.ends_with("\n# EOF\n"));
}

TEST(OpenMetrics, NothingCounted_HasNoQuantiles) {
  EXPECT_EQ(openmetrics(CacheStats{}).find("quantile"), std::string::npos);
}

}  // namespace
}  // namespace headrace
