// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/drive.h"

#include <gtest/gtest.h>

#include "benchmarks/keyvalue/live/connection.h"
#include "benchmarks/keyvalue/live/server_testing.h"

namespace headrace::kv_bench {
namespace {

DriveOptions options_for(const TestServer& server, std::uint64_t records = 100) {
  EXPECT_TRUE(load({.socket = server.socket(), .records = records, .value_bytes = 200}));
  return {.socket = server.socket(),
          .records = records,
          .value_bytes = 200,
          .clients = 4,
          .seconds = 0.05};
}

class Drive : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!with_hiredis()) GTEST_SKIP() << "without hiredis";
  }
};

TEST_F(Drive, EveryAnswerIsRight) {
  for (const char* workload : {"A", "B", "C", "D"}) {
    TestServer server;
    const auto driven = drive(*find_workload(workload), options_for(server));
    ASSERT_TRUE(driven) << driven.error().message;
    EXPECT_GT(driven->operations, 0U);
    EXPECT_EQ(driven->wrong, 0U) << workload;  // no record is read before it is stored
    EXPECT_LE(driven->p50_us, driven->p99_us);
    EXPECT_FALSE(driven->cpu_us);
  }
}

TEST_F(Drive, WrongValuesAreCounted) {
  TestServer server({.wrong = true});
  const auto driven = drive(*find_workload("C"), options_for(server));
  EXPECT_EQ(driven->wrong, driven->operations);
}

TEST_F(Drive, AtARate_EveryIntendedOperationRuns) {
  TestServer server;
  DriveOptions options = options_for(server);
  options.rate = 2000;
  const auto driven = drive(*find_workload("C"), options);
  EXPECT_EQ(driven->operations + driven->not_begun, 100U);
}

TEST_F(Drive, Stall_CountsInLatenciesOfIntendedOperations) {
  TestServer server({.stall_ms = 60});
  DriveOptions options{.socket = server.socket(),
                       .records = 100,
                       .value_bytes = 200,
                       .clients = 1,
                       .seconds = 0.05,
                       .rate = 1000};
  const auto driven = drive(*find_workload("C"), options);
  ASSERT_TRUE(driven) << driven.error().message;
  // All were intended to begin within 50 ms, and were answered after 60; a single client would have
  // waited once.
  EXPECT_GT(driven->p50_us, 30'000);
}

TEST_F(Drive, ServerThatEnds_IsReported) {
  TestServer server({.ends_after = 120});
  const auto driven = drive(*find_workload("C"), options_for(server));
  EXPECT_EQ(driven.error().code, ErrorCode::io);
}

}  // namespace
}  // namespace headrace::kv_bench
