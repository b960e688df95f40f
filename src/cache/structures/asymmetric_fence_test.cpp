// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/asymmetric_fence.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>

namespace headrace {
namespace {

TEST(AsymmetricFenceTest, OneOfTwoSeesTheOther) {
  if (!prepare_asymmetric_fence()) GTEST_SKIP() << "no membarrier(2) here";
  constexpr int kRounds = 20000;
  std::atomic<int> x{0}, y{0};
  std::array<int, 2> seen{};
  int missed = 0;
  std::barrier line(2, [&]() noexcept {});
  const auto relaxed = std::memory_order_relaxed;  // pairs with nothing: the fences are the proof
  std::thread light([&] {
    for (int i = 0; i < kRounds; ++i) {
      line.arrive_and_wait();
      x.store(1, relaxed);
      light_fence();
      seen[0] = y.load(relaxed);
      line.arrive_and_wait();
      line.arrive_and_wait();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    x = y = 0;
    line.arrive_and_wait();
    y.store(1, relaxed);
    heavy_fence();
    seen[1] = x.load(relaxed);
    line.arrive_and_wait();
    missed += seen[0] == 0 && seen[1] == 0;
    line.arrive_and_wait();
  }
  light.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace headrace
