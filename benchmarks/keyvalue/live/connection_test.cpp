// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/connection.h"

#include <gtest/gtest.h>

#include <chrono>

#include "benchmarks/keyvalue/live/server_testing.h"

namespace headrace::kv_bench {
namespace {

TEST(Connection, AValueNamesItsRecordAndIsDrawnAnew) {
  Random random(1);
  const std::string first = value_of(7, 100, random), second = value_of(7, 100, random);
  EXPECT_EQ(first.size(), 100U);
  EXPECT_EQ(first.rfind(key_of(7) + ' ', 0), 0U);
  EXPECT_NE(first, second);
  EXPECT_EQ(value_of(7, 3, random), key_of(7).substr(0, 3));
}

TEST(Connection, LoadingStoresEveryRecord) {
  if (!with_hiredis()) GTEST_SKIP() << "without hiredis";
  TestServer server;
  ASSERT_TRUE(load({.socket = server.socket(), .records = 1000, .value_bytes = 100}));
  const auto& stored = server.stored();
  EXPECT_EQ(stored.size(), 1000U);
  for (std::uint64_t record = 0; record < 1000; ++record) {
    ASSERT_EQ(stored.at(key_of(record)).size(), 100U);
  }
}

TEST(Connection, LoadingKeepsToItsRate) {
  if (!with_hiredis()) GTEST_SKIP() << "without hiredis";
  TestServer server;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(load({.socket = server.socket(), .records = 21, .value_bytes = 10, .rate = 200}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
}

TEST(Connection, Failures_AreReported) {
  EXPECT_EQ(load({.socket = "/nowhere/socket", .records = 1, .value_bytes = 1}).error().code,
            with_hiredis() ? ErrorCode::absent : ErrorCode::unsupported);
  if (!with_hiredis()) GTEST_SKIP() << "without hiredis";
  TestServer refuses({.refuses = true});
  const Status refused = load({.socket = refuses.socket(), .records = 10, .value_bytes = 10});
  EXPECT_EQ(refused.error().message, "the server refuses: OOM no memory");
  TestServer ends({.ends_after = 3});
  EXPECT_EQ(load({.socket = ends.socket(), .records = 10, .value_bytes = 10}).error().code,
            ErrorCode::io);
}

}  // namespace
}  // namespace headrace::kv_bench
