// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/page_update.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace headrace::cache_bench {
namespace {

TEST(PageUpdate, EveryImplementation_KeepsAllUpdates) {
  std::string name = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  for (const char* implementation : {"headrace", "mover", "pool"}) {
    Options options;
    options.implementation = implementation;
    options.directory = directory;
    options.threads = 3;
    options.operations = 2000;
    options.extents = 2000;
    options.budget = 4_MiB;
    const auto row = run_page_update(options);
    ASSERT_TRUE(row) << row.error().message;
    EXPECT_EQ(row->at("wrong"), 0) << implementation;
    EXPECT_EQ(row->at("operations"), 6000) << implementation;
    EXPECT_GT(row->at("updates"), 300) << implementation;
    EXPECT_GT(row->at("misses"), 0) << implementation;
  }
  EXPECT_FALSE(run_page_update({.implementation = "rocksdb"}).has_value());
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace headrace::cache_bench
