// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/options.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::kv_bench {
namespace {

Result<Options> parsed(std::vector<const char*> words) { return parse_options(words); }

TEST(Options, AreParsed) {
  const Options options = *parsed({"--workload", "A", "--value", "100", "--socket", "/s"});
  EXPECT_EQ(options.workload, "A");
  EXPECT_EQ(options.drive.value_bytes, 100U);
  EXPECT_EQ(options.task, Task::drive);
}

TEST(Options, ATaskHasWhatItNeeds) {
  const Options drive = *parsed({"--task", "drive", "--socket", "/s", "--records", "2000", "--rate",
                                 "5", "--clients", "3", "--seed", "4", "--protocol", "memcached"});
  EXPECT_EQ(drive.task, Task::drive);
  EXPECT_EQ(drive.drive.protocol, Protocol::memcached);
  EXPECT_EQ(drive.drive.socket, "/s");
  EXPECT_EQ(drive.drive.records, 2000U);
  EXPECT_EQ(drive.drive.clients, 3U);
  EXPECT_EQ(drive.drive.seed, 4U);
  EXPECT_EQ(drive.drive.rate, 5.0);
  const Options serve = *parsed({"--task", "serve", "--server", "7", "--", "redis", "--help"});
  EXPECT_EQ(serve.program.size(), 2U);
  EXPECT_FALSE(serve.help);
  const Options store = *parsed({"--task", "store", "--socket", "/s", "--file", "/f", "--cached",
                                 "9", "--records", "2000", "--value", "100"});
  EXPECT_EQ(store.store.file, "/f");
  EXPECT_EQ(store.store.cached.value, 9U);
  EXPECT_EQ(store.store.records, 2000U);
  EXPECT_EQ(store.store.value_bytes, 100U);
}

}  // namespace
}  // namespace headrace::kv_bench
