// SPDX-License-Identifier: Apache-2.0
#include "core/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace headrace {
namespace {

TEST(AffinityTest, KnowsTheCpusThatTheKernelAllows) {
  const auto cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::ranges::is_sorted(cpus));
  EXPECT_TRUE(std::ranges::binary_search(cpus, static_cast<unsigned>(sched_getcpu())));
}

TEST(AffinityTest, PinsToOneCpu) {
  const unsigned last = allowed_cpus().back();
  std::jthread([last] {
    ASSERT_TRUE(pin(pthread_self(), std::vector{last}));
    EXPECT_EQ(sched_getcpu(), static_cast<int>(last));
    EXPECT_EQ(allowed_cpus(), std::vector{last});
  }).join();
}

TEST(AffinityTest, RefusesNoCpusAndCpusThatAreNotThere) {
  std::jthread([] {
    const auto before = allowed_cpus();
    EXPECT_FALSE(pin(pthread_self(), {}));
    EXPECT_FALSE(pin(pthread_self(), std::vector{65535U}));
    EXPECT_EQ(allowed_cpus(), before);
  }).join();
}

}  // namespace
}  // namespace headrace
