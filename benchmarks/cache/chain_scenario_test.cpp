// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/chain_scenario.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

namespace headrace::cache_bench {
namespace {

TEST(ChainScenario, EveryImplementation_ReadsTheRightBytes_AndTheChainReadsLeast) {
  std::string name = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  std::map<std::string, std::uint64_t> reads;
  for (const char* implementation : {"first", "further", "chain"}) {
    Options options;
    options.implementation = implementation;
    options.directory = directory;
    options.threads = 2;
    options.operations = 4000;
    options.extents = 2000;
    options.budget = 4_MiB;
    const auto row = run_chain(options);
    ASSERT_TRUE(row) << row.error().message;
    EXPECT_EQ(row->at("wrong"), 0) << implementation;
    EXPECT_EQ(row->at("operations"), 8000) << implementation;
    reads[implementation] = row->at("reads");
    if (reads.size() == 3) {
      EXPECT_GT(row->at("demotions"), 0);
    }
  }
  EXPECT_LT(reads["chain"], reads["first"]);
  EXPECT_FALSE(run_chain({.implementation = "pool"}).has_value());
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace headrace::cache_bench
