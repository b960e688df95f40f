// SPDX-License-Identifier: Apache-2.0
#include "headrace/units.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::milliseconds;

TEST(Bytes, CountInBinaryMultiples) {
  EXPECT_EQ(1_KiB, Bytes{1024});
  EXPECT_EQ(3_MiB - 1_MiB, 2_MiB);
  EXPECT_EQ(1_GiB / 1_MiB, 1024u);
  EXPECT_EQ(to_string(64_B), "64 B");
  EXPECT_EQ(to_string(64_KiB), "64 KiB");
  EXPECT_EQ(to_string(Bytes{3 << 19}), "1.5 MiB");
  EXPECT_EQ(to_string(Bytes{(1 << 20) - 1}), "1 MiB");
  EXPECT_EQ(to_string(Bytes{125'600'000'000}), "117 GiB");
  EXPECT_EQ(to_string(Bytes{~0ull}), "16 EiB");
}

TEST(BytesPerSecond, CountsInDecimalMultiples) {
  EXPECT_EQ(to_string(BytesPerSecond{24.13e9}), "24.1 GB/s");
  EXPECT_EQ(to_string(BytesPerSecond{7.984e9}), "7.98 GB/s");
  EXPECT_EQ(to_string(BytesPerSecond{2.5e9}), "2.5 GB/s");
  EXPECT_EQ(to_string(BytesPerSecond{241.3e9}), "241 GB/s");
  EXPECT_EQ(to_string(BytesPerSecond{999.7e6}), "1 GB/s");
  EXPECT_EQ(to_string(BytesPerSecond{999}), "999 B/s");
  EXPECT_EQ(to_string(BytesPerSecond{2.5e15}), "2500 TB/s");
}

TEST(BytesPerSecond, IsBytesOverTimeAndBack) {
  const BytesPerSecond rate = Bytes{3'000'000} / milliseconds{1};
  EXPECT_DOUBLE_EQ(rate.value, 3e9);
  EXPECT_EQ(Bytes{3'000'000} / rate, milliseconds{1});
}

TEST(Seconds, RoundOnlyOnce) {
  static_assert(seconds(milliseconds{300}) == 0.3 && seconds(milliseconds{700}) == 0.7);
  static_assert(seconds(std::chrono::seconds{30}) == 30.0);
}

}  // namespace
}  // namespace headrace
