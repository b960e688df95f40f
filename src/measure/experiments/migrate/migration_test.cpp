// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/migration.h"

#include <gtest/gtest.h>

namespace headrace::experiment_migrate {
namespace {

using session::Sample;

constexpr Nanoseconds kTime = std::chrono::milliseconds{10};
constexpr Nanoseconds kCopying = std::chrono::milliseconds{4};

Result<Sample> moved(Bytes bytes) {
  return sample_of(
      {.asked = 16_MiB, .moved = bytes, .page = base_page(), .time = kTime, .copying = kCopying},
      NodeId{3});
}

TEST(MigrationSample, TheRateIsOfWhatMoved) {
  const Sample all = *moved(16_MiB);
  const Sample half = *moved(8_MiB);
  EXPECT_DOUBLE_EQ(all.value, static_cast<double>((16_MiB).value) * 100);
  EXPECT_DOUBLE_EQ(half.value, all.value / 2);
  EXPECT_EQ(all.details.at("stayed"), 0);
  EXPECT_EQ(half.details.at("stayed"), static_cast<double>(8_MiB / base_page()));
  EXPECT_DOUBLE_EQ(half.details.at("per_page_ns"), 2 * all.details.at("per_page_ns"));
}

TEST(MigrationSample, AllThatStayedIsAnErrorAndNoRate) {
  const auto none = moved(0_B);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::exhausted);
  EXPECT_NE(none.error().message.find("came to node 3"), std::string::npos);
}

// Copying and the rest add up to the whole time, for the bytes that moved.
TEST(MigrationSample, CopyShare_IsOfTheWholeTime) {
  for (const Bytes bytes : {16_MiB, 8_MiB}) {
    const Sample sample = *moved(bytes);
    const double copying = sample.details.at("copy_share") * static_cast<double>(kTime.count());
    EXPECT_DOUBLE_EQ(copying,
                     4e6 * static_cast<double>(bytes.value) / static_cast<double>((16_MiB).value));
    const auto pages = static_cast<double>(bytes / base_page());
    EXPECT_NEAR(sample.details.at("rest_ns_per_page") * pages + copying,
                static_cast<double>(kTime.count()), 1);
  }
}

}  // namespace
}  // namespace headrace::experiment_migrate
