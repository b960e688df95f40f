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

TEST(OpenMetrics, Tenants_AreLabels) {
  CacheStats stats;
  stats.tenants = {{.hits = 1}, {.name = "a\"", .misses = 2, .bytes_used = 3_KiB}};
  const std::string page = openmetrics(stats);
  const auto line = [](std::string_view name, std::string_view more) {
    return "headrace_cache_tenant_" + std::string(name) +
           "{cache=\"cache\",tenant=" + std::string(more);
  };
  EXPECT_TRUE(has_line(page, line("accesses_total", "\"\",state=\"ready\"} 1"))) << page;
  EXPECT_TRUE(has_line(page, line("accesses_total", "\"a\\\"\",state=\"other\"} 2"))) << page;
  EXPECT_TRUE(has_line(page, line("used_bytes", "\"a\\\"\"} 3072"))) << page;
  EXPECT_EQ(openmetrics(CacheStats{}).find("tenant"), std::string::npos);
}

TEST(OpenMetrics, NothingCounted_HasNoQuantiles) {
  EXPECT_EQ(openmetrics(CacheStats{}).find("quantile"), std::string::npos);
}

}  // namespace
}  // namespace headrace
