// SPDX-License-Identifier: Apache-2.0
#include "sim/host.h"

#include <gtest/gtest.h>

#include "sim/sim_testing.h"

namespace headrace::sim {
namespace {

TEST(Host, ReservedMemory_IsCountedAgainstItsNode) {
  test_on_host([](Host& host) {
    const auto most = host.reserve(kFast, 1_GiB);
    ASSERT_TRUE(most.has_value());
    EXPECT_EQ((*most)->object().node(), kFast);
    EXPECT_EQ(host.node_of((*most)->bytes().data() + 4711), kFast);
    const auto more = host.reserve(kFast, 1_B);
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code, ErrorCode::exhausted);
    EXPECT_EQ(more.error().message,
              "1 B do not fit on node 1 of test: 0 B of 1 GiB are left; make the data smaller or "
              "the node larger");
  });
}

TEST(Host, ReleasedMemory_CanBeReservedAgain) {
  test_on_host([](Host& host) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(host.reserve(kFast, 1_GiB).has_value());
    EXPECT_EQ(host.reserve(kFast, 0_B).error().code, ErrorCode::invalid);
    EXPECT_EQ(host.reserve(NodeId{47}, 1_B).error().code, ErrorCode::absent);
  });
}

// As many addresses as a large machine has memory take no memory here.
TEST(Host, HundredsOfGibibytes_AreReserved) {
  Machine large = test_machine();
  large.nodes[0].capacity = 256_GiB;
  large.nodes[1].capacity = 64_GiB;
  test_on_host(
      [](Host& host) {
        const auto slow = host.reserve(kSlow, 256_GiB);
        const auto fast = host.reserve(kFast, 64_GiB);
        ASSERT_TRUE(slow.has_value() && fast.has_value());
        (*slow)->bytes().front() = (*slow)->bytes().back() = std::byte{1};
        EXPECT_EQ(host.node_of(&(*slow)->bytes().back()), kSlow);
      },
      large);
}

TEST(Host, Computing_TakesTheTimeOfTheMemoryOrOfTheCore) {
  test_on_host([](Host& host) {
    const auto data = host.reserve(kSlow, 64_MiB);
    ASSERT_TRUE(data.has_value());
    // 64 lines at 100 ns would be 40.96 GB/s; the memory has 20.
    const auto memory = host.add_work({.name = "memory", .lines_in_flight = 64});
    const auto core =
        host.add_work({.name = "core", .bytes_per_second = 1e9, .lines_in_flight = 64});
    ASSERT_TRUE(memory.has_value() && core.has_value());
    EXPECT_TRUE(host.compute(kSlow, (*data)->bytes(), *memory).has_value());
    const double first = seconds(host.turns().now());
    const Flow same{.name = "same",
                    .initiator = kSlow,
                    .accesses = {{.node = kSlow}},
                    .in_flight_bytes = 64 * kLineBytes};
    const double rate = host.solver().solve({&same, 1})->flows[0].rate;
    EXPECT_LT(rate, 21e9);
    EXPECT_NEAR(first, (64 << 20) / rate, 1e-6);
    EXPECT_TRUE(host.compute(kSlow, (*data)->bytes().first(1'000'000), *core, 1.5).has_value());
    EXPECT_NEAR(seconds(host.turns().now()) - first, 1.5e-3, 1e-6);
  });
}

TEST(Host, WorkWithoutLinesInFlight_IsInvalid) {
  test_on_host([](Host& host) {
    const auto none = host.add_work({.name = "none"});
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().message, "none: 0 lines in flight; give a number above 0");
    EXPECT_FALSE(
        host.add_work({.name = "rate", .bytes_per_second = -1, .lines_in_flight = 1}).has_value());
  });
}

}  // namespace
}  // namespace headrace::sim
