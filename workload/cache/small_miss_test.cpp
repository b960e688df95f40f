// SPDX-License-Identifier: Apache-2.0
#include "workload/cache/small_miss.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/sanitizers.h"
#include "workload/cache/implementations.h"

namespace headrace::cache_bench {
namespace {

Options tiny(const std::filesystem::path& directory) {
  Options options;
  options.scenario = kSmallMiss;
  options.directory = directory;
  options.threads = 3;
  options.seconds = 0.02;
  options.extents = 2000;
  options.budget = 4_MiB;
  options.scan = 8_MiB;
  return options;
}

TEST(SmallMiss, EachOfThemReadsRight) {
  std::string name = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  Options options = tiny(directory);
  int runs = 0;
  for (const Implementation& each : implementations()) {
    if (each.small_miss == nullptr) continue;
#ifdef HEADRACE_TSAN
    if (each.name == "rocksdb") continue;  // TSan does not see into its library
#endif
    options.implementation = each.name;
    const auto row = run(options);
    ASSERT_TRUE(row) << row.error().message;
    EXPECT_EQ(row->at("wrong"), 0) << each.name;
    EXPECT_GT(row->at("misses"), 0) << each.name;
    EXPECT_GT(row->at("operations"), row->at("misses")) << each.name;
    EXPECT_GT(row->at("scan_alone_bytes_per_second"), 0) << each.name;
    EXPECT_GT(row->at("scan_beside_bytes_per_second"), 0) << each.name;
    ++runs;
  }
  EXPECT_GE(runs, 2);
  std::filesystem::remove_all(directory);
}

TEST(SmallMiss, WithoutItsDirectoryThereIsNone) {
  const auto row = run([] {
    Options options = tiny("/nowhere");
    options.implementation = "sharded";
    return options;
  }());
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::cache_bench
