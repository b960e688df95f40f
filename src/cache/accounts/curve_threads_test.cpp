// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cache/accounts/curve.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

TEST(ReuseSampleTest, ThreadsCountEachAccess) {
  constexpr std::uint64_t kPiece = 64;
  test::Source source(kPiece * 8);
  ReuseSample sample;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (std::uint64_t k = 0; k < 800; ++k) sample.access(source.at(k % 8 * kPiece, kPiece));
      });
    }
  }
  const std::vector<CacheCurvePoint> curve = sample.curve(3200);
  ASSERT_FALSE(curve.empty());
  EXPECT_NEAR(curve.back().misses, 8.0 / 3200, 1e-9);
}

}  // namespace
}  // namespace headrace
