// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/connection.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "benchmarks/keyvalue/live/server_testing.h"

namespace headrace::kv_bench {
namespace {

TEST(Redis, AnswersComeInTheOrderOfTheQuestions) {
  if (!with_hiredis()) GTEST_SKIP() << "without hiredis";
  TestServer server;
  auto connection = *open_redis(server.socket());
  Random random(1);
  connection->ask({Kind::insert, 5}, value_of(5, 50, random));
  connection->ask({Kind::read, 5}, "");
  connection->ask({Kind::read, 6}, "");
  ASSERT_TRUE(*connection->send());
  for (const bool right : {true, true, false}) {
    while (!*connection->take(50)) {
      pollfd ready{connection->fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
    }
    EXPECT_EQ(connection->right(), right);
  }
}

}  // namespace
}  // namespace headrace::kv_bench
