// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/settings.h"

#include <gtest/gtest.h>

namespace headrace::cuda::fake {
namespace {

TEST(FakeSettings, ReadsEachKind) {
  const auto read =
      parse_settings("devices=2,memory=3G,paradigm=ats,numa_node=4,latency=5us,fail=0.25,l2=50M");
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(read->devices, 2U);
  EXPECT_EQ(read->memory, 3UL << 30);
  EXPECT_EQ(read->paradigm, Paradigm::ats);
  EXPECT_EQ(read->numa_node, 4);
  EXPECT_EQ(read->latency, std::chrono::microseconds(5));
  EXPECT_EQ(read->fail, 0.25);
  EXPECT_EQ(read->l2, 50UL << 20);
  EXPECT_EQ(parse_settings("")->devices, 1U);
  const auto costs = parse_settings("h200,memory=1G,call_cost=5");
  ASSERT_TRUE(costs) << costs.error();
  EXPECT_EQ(costs->bandwidth, double{51UL << 30});
  EXPECT_EQ(costs->call_cost, 5U) << "what comes later holds";
  EXPECT_EQ(costs->memory, 1UL << 30);
  EXPECT_EQ(costs->data, 0U);
}

TEST(FakeSettings, RefusesWhatItDoesNotKnow) {
  for (const char* text :
       {"devices", "devices=", "devices=-1", "devices=17", "colour=red", "memory=1X", "memory=K",
        "memory=99999999999999T", "latency=5", "latency=-5us", "latency=9223372036854775807ms",
        "fail=2", "page=5000", "paradigm=", "devices=1,,memory=1M", "numa_node=1"}) {
    EXPECT_FALSE(parse_settings(text)) << text;
  }
  EXPECT_EQ(parse_settings("memory=1X").error(),
            "HEADRACE_FAKE_CUDA: cannot read 'memory=1X'; tests/support/fake_cuda/README.md has "
            "the keys");
}

}  // namespace
}  // namespace headrace::cuda::fake
