// SPDX-License-Identifier: Apache-2.0
#include "core/waiting/duration.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::milliseconds;

TEST(Duration, Times_HaveTheirUsualUnit) {
  EXPECT_EQ(to_string(Nanoseconds{0}), "0 s");
  EXPECT_EQ(to_string(Nanoseconds{999}), "999 ns");
  EXPECT_EQ(to_string(Nanoseconds{1500}), "1.5 us");
  EXPECT_EQ(to_string(milliseconds{40}), "40 ms");
  EXPECT_EQ(to_string(Nanoseconds{999'960'000}), "1 s");
  EXPECT_EQ(to_string(std::chrono::seconds{30}), "30 s");
  EXPECT_EQ(to_string(std::chrono::seconds{200}), "200 s");
  EXPECT_EQ(to_string(std::chrono::seconds{630}), "10.5 min");
  EXPECT_EQ(to_string(std::chrono::hours{3}), "3 h");
  EXPECT_EQ(to_string(-milliseconds{2}), "-2 ms");
}

}  // namespace
}  // namespace headrace
