// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/options.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::cache_bench {
namespace {

TEST(Options, AreSet) {
  const auto options =
      parse_options(std::array{"--directory", "/d", "--extents", "16", "--budget", "1048576",
                               "--scan", "2097152", "--seed", "9", "--tenants", "--curve"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->directory, "/d");
  EXPECT_EQ(options->extents, 16U);
  EXPECT_EQ(options->budget, 1_MiB);
  EXPECT_EQ(options->scan, 2_MiB);
  EXPECT_EQ(options->seed, 9U);
  EXPECT_TRUE(options->tenants && options->curve);
}

}  // namespace
}  // namespace headrace::cache_bench
