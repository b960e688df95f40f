// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/waiting_line.h"

#include <gtest/gtest.h>

namespace headrace::kv_bench {
namespace {

constexpr Served kServed{.fast_ns = 10'000, .slow_ns = 20'000, .ssd_ns = 50'000};

TEST(WaitingLine, WithAThreadForEachNobodyWaits) {
  const auto [p50, p99] = wait_in_line(kServed, {.ssd = 0.05}, 4, {.clients = 4});
  EXPECT_EQ(p50, 10);
  EXPECT_EQ(p99, 50);
}

TEST(WaitingLine, OthersAreServedInTurn) {
  // Five clients per thread: each waits for four others.
  const auto [p50, p99] = wait_in_line(kServed, {}, 2, {.clients = 10});
  EXPECT_EQ(p50, 50);
  EXPECT_EQ(p99, 50);
}

TEST(WaitingLine, TheMeanIsLittlesLaw) {
  // Many clients all wait about clients divided by operations per second.
  const auto [p50, p99] = wait_in_line(kServed, {.slow = 0.5}, 1, {.clients = 1000});
  EXPECT_NEAR(p50, 1000 * 15, 300);
  EXPECT_LT(p99, 1000 * 16.5);
}

TEST(WaitingLine, TheSameSeedWaitsTheSame) {
  const Shares shares{.slow = 0.3};
  const auto first = wait_in_line(kServed, shares, 3, {.clients = 7});
  EXPECT_EQ(first.p99_us, wait_in_line(kServed, shares, 3, {.clients = 7}).p99_us);
}

}  // namespace
}  // namespace headrace::kv_bench
