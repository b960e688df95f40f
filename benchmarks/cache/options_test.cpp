// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/options.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace headrace::cache_bench {
namespace {

TEST(Options, AreSet) {
  const auto options = parse_options(std::array{
      "--implementation", "sharded", "--scenario",   "hit-spread", "--threads", "4",
      "--seconds",        "0.5",     "--operations", "256",        "--seed",    "9",
      "--directory",      "/d",      "--extents",    "16",         "--budget",  "1048576",
      "--scan",           "2097152"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->implementation, "sharded");
  EXPECT_EQ(options->scenario, "hit-spread");
  EXPECT_EQ(options->threads, 4U);
  EXPECT_EQ(options->seconds, 0.5);
  EXPECT_EQ(options->operations, 256U);
  EXPECT_EQ(options->seed, 9U);
  EXPECT_EQ(options->directory, "/d");
  EXPECT_EQ(options->extents, 16U);
  EXPECT_EQ(options->budget, 1_MiB);
  EXPECT_EQ(options->scan, 2_MiB);
}

TEST(Options, InvalidValues_AreErrors) {
  const std::vector<std::vector<const char*>> all = {
      {"--thread", "1"},   {"--threads"},         {"--threads", "0"}, {"--threads", "1x"},
      {"--seconds", "-1"}, {"--seconds", "nan"},  {"--seconds", ""},  {"--operations", "0"},
      {"--budget", "1"},   {"--extents", "1e99"}, {"hit-spread"}};
  for (const auto& arguments : all) {
    const auto options = parse_options(arguments);
    ASSERT_FALSE(options) << arguments.front();
    EXPECT_EQ(options.error().code, ErrorCode::invalid);
  }
}

TEST(Options, HelpNamesThemAll) {
  EXPECT_TRUE(parse_options(std::array{"--help"})->help);
  EXPECT_TRUE(parse_options(std::array{"--list"})->list);
  for (const char* name : {"--implementation NAME", "--operations N", "--directory DIR"}) {
    EXPECT_NE(help_text().find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace headrace::cache_bench
