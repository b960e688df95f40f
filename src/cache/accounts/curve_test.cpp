// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/curve.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cwchar>
#include <list>
#include <vector>

#include "headrace/random.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kBlock = 64;

// LRU with that many bytes, in the plainest way.
double misses_of_lru(const std::vector<Extent>& accesses, std::uint64_t budget) {
  std::list<Extent> order;
  std::uint64_t used = 0;
  std::size_t misses = 0;
  for (const Extent& extent : accesses) {
    const auto same = [&](const Extent& other) { return other.offset == extent.offset; };
    const auto at = std::find_if(order.begin(), order.end(), same);
    if (at != order.end()) {
      order.splice(order.begin(), order, at);
      continue;
    }
    ++misses;
    order.push_front(extent);
    used += extent.length.value;
    while (used > budget) {
      used -= order.back().length.value;
      order.pop_back();
    }
  }
  return static_cast<double>(misses) / static_cast<double>(accesses.size());
}

// The miss ratio of the largest point within the budget.
double at(const std::vector<CacheCurvePoint>& curve, std::uint64_t budget) {
  double misses = 1;
  for (const CacheCurvePoint& point : curve) {
    if (point.budget.value <= budget) misses = point.misses;
  }
  return misses;
}

RC_GTEST_PROP(ReuseSampleTest, FewKeys_GiveTheMissesOfLru, ()) {
  Source source(kBlock * 64);
  std::vector<Extent> accesses;
  ReuseSample sample(32);  // renumbered each 128 accesses
  for (int i = *rc::gen::inRange(1, 600); i > 0; --i) {
    const auto number = *rc::gen::inRange<std::uint64_t>(0, 20);
    accesses.push_back(source.at(number * kBlock, 1 + number * 3));
    sample.access(accesses.back());
  }
  for (const CacheCurvePoint& point : sample.curve(accesses.size())) {
    // A point is rounded up to a 32nd of a power of two, and down to a byte.
    const std::uint64_t budget = point.budget.value;
    RC_ASSERT(misses_of_lru(accesses, budget + 1) <= point.misses + 1e-9);
    const auto less = static_cast<std::uint64_t>(static_cast<double>(budget) / std::exp2(1.0 / 32));
    RC_ASSERT(misses_of_lru(accesses, less) >= point.misses - 1e-9);
  }
}

TEST(ReuseSampleTest, ManyKeys_AreWithinTwoHundredthsOfLru) {
  constexpr std::uint64_t kKeys = 20'000;
  constexpr std::size_t kAccesses = 200'000;
  Source source(kBlock * kKeys);
  Random random(7);
  ReuseSample sample;                          // two fifths of the keys
  std::vector<wchar_t> order;                  // the last used first; wmemchr() is fast
  std::vector<std::size_t> hits_at(kKeys, 0);  // by their place in it: exact distances
  for (std::size_t i = 0; i < kAccesses; ++i) {
    // Skewed; in every eighth part a scan.
    const double skewed = std::pow(random.unit(), 3) * kKeys;
    const std::uint64_t key = i / 20000 % 8 == 7 ? i % kKeys : static_cast<std::uint64_t>(skewed);
    sample.access(source.at(key * kBlock, kBlock));
    const auto name = static_cast<wchar_t>(key);
    const wchar_t* const found = std::wmemchr(order.data(), name, order.size());
    if (found != nullptr) {
      const auto place = found - order.data();
      ++hits_at[static_cast<std::size_t>(place)];
      order.erase(order.begin() + place);
    }
    order.insert(order.begin(), name);
  }
  const std::vector<CacheCurvePoint> curve = sample.curve(kAccesses);
  double error = 0;
  std::size_t hits = 0;
  for (std::size_t blocks = 1; blocks <= kKeys; ++blocks) {
    hits += hits_at[blocks - 1];
    const double misses = 1 - static_cast<double>(hits) / kAccesses;
    error += std::abs(misses - at(curve, blocks * kBlock)) / kKeys;
  }
  EXPECT_LE(error, 0.02);
}

TEST(ReuseSampleTest, NoSecondAccess_HasNoPoint) {
  Source source(kBlock);
  ReuseSample sample;
  EXPECT_TRUE(sample.curve(0).empty());
  sample.access(source.at(0, kBlock));
  EXPECT_TRUE(sample.curve(1).empty());
}

}  // namespace
}  // namespace headrace
