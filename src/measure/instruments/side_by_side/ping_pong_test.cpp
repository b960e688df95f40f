// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/ping_pong.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "headrace/clock.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

struct alignas(kLine) Lines {
  std::byte bytes[4 * kLine];
};

std::uint64_t word_of(const Lines& lines, std::size_t line) {
  std::uint64_t word = 0;
  std::memcpy(&word, lines.bytes + line * kLine, sizeof(word));
  return word;
}

TEST(PingPongTest, EveryLineGoesToAndFroAsOftenAsAsked) {
  const CpuSet cpus = usable_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  Lines lines;
  const auto found = ping_pong({cpus[0], cpus[1]}, lines.bytes, 20, std::chrono::seconds{20});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_GT(found->round_trip_ns, 1) << "faster than light through two cores";
  EXPECT_GT(found->cpu_share, 0);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(word_of(lines, i), 2 * (32 + 20)) << i;
}

TEST(PingPongTest, ACpuThatIsNotThereIsAnErrorAndNobodyWaitsForIt) {
  Lines lines;
  const unsigned here = usable_cpus().front();
  for (const std::array<unsigned, 2> cpus : {std::array{here, 100000U}, {100000U, here}}) {
    const Nanoseconds begin = system_clock().now();
    const auto found = ping_pong(cpus, lines.bytes, 10, std::chrono::minutes{2});
    EXPECT_LT(system_clock().now() - begin, std::chrono::minutes{1}) << "it gave up";
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::denied);
    EXPECT_NE(found.error().message.find("CPU 100000"), std::string::npos);
  }
}

// Both on one CPU: an answer comes only when the system switches threads.
TEST(PingPongTest, TheWaitHasABound) {
  Lines lines;
  const unsigned here = usable_cpus().front();
  const auto found = ping_pong({here, here}, lines.bytes, 1'000'000'000, Nanoseconds{1});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::timed_out);
}

}  // namespace
}  // namespace headrace::instruments
