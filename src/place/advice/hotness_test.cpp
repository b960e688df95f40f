// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "headrace/advice/hotness.h"

namespace headrace {
namespace {

TEST(HotnessTest, TheHottestPagesAreTakenFirst) {
  const std::vector<PageCount> histogram = {{10, 1}, {1, 70}, {2, 10}};  // 100 accesses
  EXPECT_DOUBLE_EQ(*pages_for(histogram, 0.7), 1);
  EXPECT_DOUBLE_EQ(*pages_for(histogram, 0.9), 3);
  EXPECT_DOUBLE_EQ(*pages_for(histogram, 0.901), 4);
  EXPECT_DOUBLE_EQ(*pages_for(histogram, 1), 13);
  EXPECT_DOUBLE_EQ(*pages_for(histogram, 0), 0);
  EXPECT_DOUBLE_EQ(*accesses_of(histogram, 1), 0.7);
  EXPECT_DOUBLE_EQ(*accesses_of(histogram, 2), 0.8);
  EXPECT_DOUBLE_EQ(*accesses_of(histogram, 1e6), 1);
}

TEST(HotnessTest, InvalidHistograms_AreRefused) {
  EXPECT_EQ(pages_for({}, 0.5).error().code, ErrorCode::invalid);
  EXPECT_EQ(pages_for({{5, 0}}, 0.5).error().code, ErrorCode::invalid);
  for (const double bad : {-1.0, 1.5, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(pages_for({{1, 1}}, bad).error().code, ErrorCode::invalid);
    EXPECT_EQ(zipf_pages_for(0.99, 10, bad).error().code, ErrorCode::invalid);
  }
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(accesses_of({{1, 1}}, bad).error().code, ErrorCode::invalid);
    EXPECT_EQ(pages_for({{bad, 1}}, 0.5).error().code, ErrorCode::invalid);
    EXPECT_EQ(pages_for({{1, bad}}, 0.5).error().code, ErrorCode::invalid);
    EXPECT_EQ(zipf_pages_for(bad, 10, 0.5).error().code, ErrorCode::invalid);
    EXPECT_EQ(zipf_pages_for(0.99, bad, 0.5).error().code, ErrorCode::invalid);
  }
}

// Compared with the sum itself, which the integral replaces beyond a thousand pages.
TEST(HotnessTest, ZipfIsItsSum) {
  for (const double exponent : {0.0, 0.5, 0.99, 1.0, 1.5}) {
    double sum = 0, part = 0;
    for (int i = 1; i <= 50000; ++i) {
      sum += std::pow(i, -exponent);
      if (i == 7000) part = sum;
    }
    EXPECT_NEAR(*zipf_accesses_of(exponent, 50000, 7000), part / sum, 1e-10) << exponent;
    EXPECT_DOUBLE_EQ(*zipf_pages_for(exponent, 50000, part / sum), 7000) << exponent;
  }
}

TEST(HotnessTest, ZipfSum_IsTheSumOfItsTerms) {
  for (const double exponent : {0.5, 0.9, 0.99, 1.0, 1.5}) {
    double sum = 0;
    for (int i = 1; i <= 200'000; ++i) {
      sum += std::pow(i, -exponent);
      if (i == 1 || i == 2 || (i >= 999 && i <= 1001) || i == 200'000) {
        EXPECT_NEAR(zipf_sum(exponent, i) / sum, 1, 1e-11) << i << " " << exponent;
      }
    }
  }
}

TEST(HotnessTest, ZipfAndAHistogramOfItAgree) {
  std::vector<PageCount> histogram;
  for (int i = 1; i <= 3000; ++i) histogram.push_back({1, std::pow(i, -0.99)});
  EXPECT_DOUBLE_EQ(*zipf_pages_for(0.99, 3000, 0.8), *pages_for(histogram, 0.8));
  EXPECT_NEAR(*zipf_accesses_of(0.99, 3000, 300), *accesses_of(histogram, 300), 1e-10);
}

TEST(HotnessTest, PagesAndAccesses_AreInverseFunctions) {
  EXPECT_TRUE(rc::check([] {
    std::vector<PageCount> histogram = {{1, 1}};
    const int count = *rc::gen::inRange(0, 50);
    for (int i = 0; i < count; ++i) {
      histogram.push_back({*rc::gen::inRange(0, 1000) * 1.0, *rc::gen::inRange(0, 1000) * 1.0});
    }
    const double share = *rc::gen::inRange(0, 1001) / 1000.0;
    const double pages = *pages_for(histogram, share);
    RC_ASSERT(*accesses_of(histogram, pages) >= share - 1e-9);
    if (pages >= 1) RC_ASSERT(*accesses_of(histogram, pages - 1) < share + 1e-9);
  }));
}

// The largest supported number: 16 TiB of 4 KiB pages.
TEST(HotnessTest, BillionsOfPages) {
  const double pages = 4.0 * (1 << 30);
  const double hot = *zipf_pages_for(0.99, pages, 0.9);
  EXPECT_NEAR(*zipf_accesses_of(0.99, pages, hot), 0.9, 1e-8);
}

}  // namespace
}  // namespace headrace
