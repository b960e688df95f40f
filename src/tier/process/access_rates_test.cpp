// SPDX-License-Identifier: Apache-2.0
#include "tier/process/access_rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::uint64_t kPage = 4096;
constexpr std::uintptr_t kBase = 0x7f0000000000;

std::uintptr_t page(std::size_t i) { return kBase + i * kPage; }

AccessRates resident_pages(std::size_t count) {
  AccessRates rates({kPage}, minutes{10});
  for (std::size_t i = 0; i < count; ++i) rates.set_pages(page(i), {.resident = 1}, {});
  return rates;
}

TEST(AccessRates, CountsTheTimeForWhichATouchWouldHaveBeenSeen) {
  AccessRates rates = resident_pages(3);
  const double unknown = rates.rate(page(0), seconds{1});
  // The first fault proves that entries were removed: the second chunk is exposed from there,
  // untouched.
  rates.touched(page(0), seconds{1}, false);
  EXPECT_GT(rates.rate(page(0), seconds{5}), 0.05);
  EXPECT_LT(rates.rate(page(1), seconds{60}), unknown / 5);
  // A chunk that is not exposed since its touch does not cool with time, whatever other chunks do.
  EXPECT_NEAR(rates.rate(page(0), seconds{20}), rates.rate(page(0), seconds{1}), 0.01);
  rates.touched(page(2), seconds{21}, false);
  EXPECT_NEAR(rates.rate(page(0), seconds{40}), rates.rate(page(0), seconds{1}), 0.02)
      << "that fault belongs to the same time as the first";
}

TEST(AccessRates, ARegionThatNobodyUsesAnyMoreGrowsColdWithTheKernelsRounds) {
  AccessRates rates = resident_pages(2);
  for (int i = 1; i <= 5; ++i) rates.touched(page(0), seconds{i}, false);
  const double hot = rates.rate(page(0), seconds{5});
  rates.passed(seconds{3}, seconds{6});
  EXPECT_GT(rates.rate(page(0), seconds{60}), hot / 2) << "it was seen since that round began";
  rates.passed(seconds{10}, seconds{20});
  EXPECT_LT(rates.rate(page(0), seconds{120}), hot / 8);
}

TEST(AccessRates, ChunkInSwap_IsExposed) {
  AccessRates rates = resident_pages(2);
  rates.went_out(page(0), seconds{10});
  rates.set_pages(page(0), {.out = 1}, seconds{10});
  EXPECT_LT(rates.rate(page(0), seconds{100}), rates.rate(page(1), seconds{100}) / 5);
  rates.touched(page(0), seconds{110}, true);
  EXPECT_NEAR(rates.rate(page(0), seconds{110}), 0.01, 0.002);
  // A return from swap proves nothing about other chunks.
  EXPECT_NEAR(rates.rate(page(1), seconds{300}), rates.rate(page(1), seconds{0}), 1e-9);
}

// A page that returned by a read is not writable yet.
TEST(AccessRates, TheFirstWriteAfterAReturnProvesNothing) {
  AccessRates rates = resident_pages(2);
  rates.went_out(page(0), seconds{10});
  rates.set_pages(page(0), {.out = 1}, seconds{10});
  rates.touched(page(0), seconds{110}, true);
  rates.set_pages(page(0), {.resident = 1}, seconds{110});
  const double other = rates.rate(page(1), seconds{110});
  rates.touched(page(0), seconds{111}, false);
  EXPECT_NEAR(rates.rate(page(0), seconds{111}), 0.01, 0.002);
  EXPECT_NEAR(rates.rate(page(1), seconds{300}), other, 1e-9);
  rates.touched(page(0), seconds{112}, false);  // its entry was removed since
  EXPECT_LT(rates.rate(page(1), seconds{300}), other / 5);
}

TEST(AccessRates, RareHints_RatesAreStillFound) {
  constexpr std::size_t kPages = 512;
  std::mt19937_64 random(7);
  AccessRates rates({kPage}, minutes{10});
  const auto true_rate = [](std::size_t i) { return 0.02 * std::pow(2.0, i % 8); };
  std::vector<bool> armed(kPages);
  for (std::size_t i = 0; i < kPages; ++i) {
    // Half of the chunks are in swap; they return and leave again.
    rates.set_pages(page(i), i % 16 < 8 ? ChunkPages{.resident = 1} : ChunkPages{.out = 1}, {});
  }
  std::uniform_real_distribution<double> chance;
  const milliseconds tick{250};
  for (Nanoseconds now{}; now < minutes{20}; now += tick) {
    if (now.count() % Nanoseconds{seconds{40}}.count() == 0) armed.assign(kPages, true);
    for (std::size_t i = 0; i < kPages; ++i) {
      if (chance(random) > 1 - std::exp(-true_rate(i) * 0.25)) continue;
      if (i % 16 >= 8) {
        rates.touched(page(i), now, true);
        rates.set_pages(page(i), {.resident = 1}, now);
        rates.went_out(page(i), now);
        rates.set_pages(page(i), {.out = 1}, now);
      } else if (armed[i]) {
        armed[i] = false;
        rates.touched(page(i), now, false);
      }
    }
  }
  for (std::size_t group = 0; group < 16; ++group) {
    double sum = 0;
    for (std::size_t i = group; i < kPages; i += 16) sum += rates.rate(page(i), minutes{20});
    const double mean = sum / (kPages / 16.0);
    EXPECT_LT(mean / true_rate(group), 1.35) << "group " << group;
    // A chunk that is touched at once has few exposed seconds, so its rate is imprecise; it is hot
    // all the same.
    EXPECT_GT(mean / true_rate(group), true_rate(group) > 1 ? 0.3 : 0.65) << "group " << group;
  }
}

TEST(AccessRates, ForgetsWhatIsGone) {
  AccessRates rates = resident_pages(1);
  rates.set_pages(page(4096), {.out = 1}, seconds{9});
  rates.forget_before(seconds{5});
  EXPECT_EQ(rates.pages(page(0)).resident, 0);
  EXPECT_EQ(rates.pages(page(4096)).out, 1);
  EXPECT_EQ(rates.chunk_of(page(3) + 77), page(3));
}

TEST(AccessRates, SampledChunk_HasTheRateOfItsSamples) {
  AccessRates rates = resident_pages(2);
  for (int i = 1; i <= 100; ++i) {
    rates.sampled(page(0), seconds{i}, milliseconds{400}, 2);
    rates.sampled(page(1), seconds{i}, milliseconds{400}, 0);
  }
  // Five touches per second, less the effect of the prior: 9.4 s without a touch.
  EXPECT_NEAR(rates.rate(page(0), seconds{100}), 4, 0.3);
  EXPECT_LT(rates.rate(page(1), seconds{100}), 1e-4);
}

}  // namespace
}  // namespace headrace
