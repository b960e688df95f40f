// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/file_scenarios.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "benchmarks/cache/implementations.h"
#include "core/sanitizers.h"

namespace headrace::cache_bench {
namespace {

Options tiny(std::string_view scenario, const std::filesystem::path& directory) {
  Options options;
  options.scenario = scenario;
  options.directory = directory;
  options.threads = 3;
  options.seconds = 0.02;
  options.extents = 2000;
  options.budget = 4_MiB;
  options.scan = 8_MiB;
  return options;
}

class FileScenarios : public testing::Test {
 protected:
  ~FileScenarios() override { std::filesystem::remove_all(directory); }
  std::string name = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
};

TEST_F(FileScenarios, EveryStoreReadsRightBytes) {
  int runs = 0;
  for (const Implementation& each : implementations()) {
    if (each.run_on_file == nullptr) continue;
#ifdef HEADRACE_TSAN
    // TSan does not see into their libraries
    if (each.name == "rocksdb" || each.name == "tbb") continue;
#endif
    for (const FileScenario& scenario : kFileScenarios) {
      Options options = tiny(scenario.name, directory);
      options.implementation = each.name;
      const auto row = run(options);
      ASSERT_TRUE(row) << row.error().message;
      EXPECT_EQ(row->at("wrong"), 0) << each.name << " " << scenario.name;
      EXPECT_GT(row->at("misses"), 0) << each.name << " " << scenario.name;
      EXPECT_GT(row->at("operations"), row->at("misses")) << each.name << " " << scenario.name;
      EXPECT_GE(row->at("hit_max_ns"), row->at("hit_p50_ns").get<double>() / 1.0625) << each.name;
      EXPECT_EQ(row->at("extents"), 2000);
      ++runs;
    }
  }
  EXPECT_GE(runs, 6);
}

TEST_F(FileScenarios, OnlySmallMissScans) {
  Options options = tiny("small-miss", directory);
  options.implementation = "sharded";
  const auto scanned = run(options);
  ASSERT_TRUE(scanned) << scanned.error().message;
  for (const char* field : {"scan_alone_bytes_per_second", "scan_beside_lookups_bytes_per_second",
                            "lookups_beside_scan_per_second"}) {
    EXPECT_GT(scanned->at(field), 0) << field;
  }
  std::filesystem::remove(directory / "scan.bin");
  options.scenario = "buffer-pool";
  const auto alone = run(options);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_FALSE(alone->contains("scan_alone_bytes_per_second"));
  EXPECT_FALSE(std::filesystem::exists(directory / "scan.bin"));
}

TEST_F(FileScenarios, Sizes_AreThoseOfTheScenarioByDefault) {
  const FileScenario& pool = *find_file_scenario("buffer-pool");
  Options options;
  options.directory = directory;
  options.extents = 100;
  const auto data = FileData::make(pool, options);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->budget, pool.budget);
  EXPECT_EQ(data->lookups.blocks(), 100U);
  EXPECT_EQ(data->lookups.place(99).offset, 99U * 8192);
  EXPECT_EQ(data->lookups.place(99).length, 8192U);
}

TEST(FileScenariosAlone, MissingDirectory_IsAnError) {
  Options options = tiny("small-miss", "/nowhere");
  options.implementation = "sharded";
  const auto row = run(options);
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::cache_bench
