// SPDX-License-Identifier: Apache-2.0
#include "headrace/tier/hotness.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>

#include "tier/source.h"

namespace headrace {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kChunk = 8192;

HotnessSample sample_of(Nanoseconds covered, std::vector<Touch> touches) {
  HotnessSample sample;
  sample.covered = covered;
  sample.touches = std::move(touches);
  return sample;
}

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(Hotness, IsTheShareThatIsTouchedOverTime) {
  Hotness hotness({.half_life = seconds{10}, .chunk = {kChunk}});
  EXPECT_EQ(hotness.heat(at(kChunk)), 0);
  for (int i = 0; i < 2000; ++i) {
    hotness.add(sample_of(seconds{1}, {touch_of(kChunk, 2 * kChunk, {kChunk}),
                                       touch_of(4 * kChunk, 5 * kChunk, {kChunk / 4})}));
  }
  EXPECT_NEAR(hotness.heat(at(kChunk)), 1, 1e-9);
  EXPECT_NEAR(hotness.heat(at(2 * kChunk - 1)), 1, 1e-9);
  EXPECT_NEAR(hotness.heat(at(4 * kChunk)), 0.25, 1e-9);
  EXPECT_EQ(hotness.heat(at(2 * kChunk)), 0);
}

TEST(Hotness, HalvesWithTheHalfLifeHoweverOftenOneLooks) {
  Hotness once({.half_life = seconds{10}, .chunk = {kChunk}});
  Hotness often({.half_life = seconds{10}, .chunk = {kChunk}});
  const std::vector<Touch> touches{touch_of(kChunk, 2 * kChunk, {kChunk})};
  once.add(sample_of(seconds{20}, touches));
  for (int i = 0; i < 20; ++i) often.add(sample_of(seconds{1}, touches));
  EXPECT_NEAR(once.heat(at(kChunk)), 0.75, 1e-12);
  EXPECT_NEAR(often.heat(at(kChunk)), 0.75, 1e-12);
  once.add(sample_of(seconds{10}, {}));
  EXPECT_NEAR(once.heat(at(kChunk)), 0.375, 1e-12);
}

TEST(Hotness, SharesATouchAmongTheChunksItLiesIn) {
  Hotness hotness({.half_life = seconds{1}, .chunk = {kChunk}});
  hotness.add(sample_of(seconds{1}, {touch_of(kChunk + kChunk / 2, 3 * kChunk, {kChunk * 3 / 4})}));
  EXPECT_NEAR(hotness.heat(at(kChunk)), 0.5 * 0.25, 1e-12);
  EXPECT_NEAR(hotness.heat(at(2 * kChunk)), 0.5 * 0.5, 1e-12);
}

TEST(Hotness, ForgetsWhatItIsToldAndWhatIsCold) {
  Hotness hotness({.half_life = seconds{1}, .chunk = {kChunk}});
  std::vector<Touch> touches;
  for (std::uintptr_t i = 1; i <= 1000; ++i) {
    touches.push_back(touch_of(i * kChunk, (i + 1) * kChunk, {kChunk}));
  }
  hotness.add(sample_of(seconds{1}, touches));
  EXPECT_EQ(hotness.hottest().size(), 1000u);
  hotness.forget({static_cast<const std::byte*>(at(kChunk)), 10 * kChunk});
  EXPECT_EQ(hotness.hottest().size(), 990u);
  EXPECT_EQ(hotness.heat(at(10 * kChunk)), 0);
  EXPECT_GT(hotness.heat(at(11 * kChunk)), 0);
  hotness.add(sample_of(seconds{60}, {}));
  for (std::uintptr_t i = 1; i <= 1000; ++i) {
    touches[i - 1] = touch_of((i + 5000) * kChunk, (i + 5001) * kChunk, {kChunk});
  }
  hotness.add(sample_of(seconds{1}, touches));
  EXPECT_EQ(hotness.hottest().size(), 1000u) << "the cold ones went when there were many";
}

// The naive model: updates every chunk at every sample.
struct NaiveHotness {
  double half_life;
  std::map<std::uintptr_t, double> heat;

  void add(Nanoseconds covered, const std::map<std::uintptr_t, double>& shares) {
    const double keep = std::pow(0.5, headrace::seconds(covered) / half_life);
    for (auto& [chunk, each] : heat) each *= keep;
    for (const auto& [chunk, share] : shares) heat[chunk] += share * (1 - keep);
  }
};

RC_GTEST_PROP(HotnessModel, AgreesWithOneThatIsNaive, ()) {
  const auto half_life = *rc::gen::inRange(1, 100);
  Hotness hotness({.half_life = seconds{half_life}, .chunk = {kChunk}});
  NaiveHotness naive{static_cast<double>(half_life), {}};
  const auto samples = *rc::gen::inRange(1, 30);
  for (int i = 0; i < samples; ++i) {
    const Nanoseconds covered = std::chrono::milliseconds{*rc::gen::inRange(0, 20000)};
    std::vector<Touch> touches;
    std::map<std::uintptr_t, double> shares;
    for (std::uintptr_t chunk = 1; chunk <= 8; ++chunk) {
      const auto pages = *rc::gen::inRange<std::uint64_t>(0, 3);
      if (pages == 0) continue;
      touches.push_back(touch_of(chunk * kChunk, (chunk + 1) * kChunk, {pages * kChunk / 2}));
      shares[chunk] = static_cast<double>(pages) / 2;
    }
    hotness.add(sample_of(covered, touches));
    naive.add(covered, shares);
    for (std::uintptr_t chunk = 1; chunk <= 8; ++chunk) {
      RC_ASSERT(std::abs(hotness.heat(at(chunk * kChunk)) - naive.heat[chunk]) < 1e-9);
    }
  }
  const auto hottest = hotness.hottest();
  for (std::size_t i = 1; i < hottest.size(); ++i) {
    RC_ASSERT(hottest[i - 1].heat >= hottest[i].heat);
  }
}

}  // namespace
}  // namespace headrace
