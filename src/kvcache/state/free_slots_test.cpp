// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/free_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "headrace/random.h"

namespace headrace::kvcache {
namespace {

// Also if all keys have an equal half.
TEST(KvFreeSlots, Removal_LooksOnlyAtSlotsOfSimilarKeys) {
  constexpr std::uint32_t kSlots = 4096;
  for (const bool low : {true, false}) {
    const auto key = [low](std::uint64_t half) {
      return low ? Key{.low = 5, .high = half} : Key{.low = half, .high = 5};
    };
    std::size_t looks = 0;
    FreeSlots free;
    free.open({0, kSlots}, [&](std::uint32_t slot) {
      ++looks;
      return std::optional(key(slot));
    });
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) free.push(slot);
    looks = 0;
    std::vector<std::uint32_t> taken;
    const auto take = [&](std::uint32_t slot) { taken.push_back(slot); };
    free.take_listed(key(77), take);
    free.take_listed({.low = 78, .high = 2}, take);
    EXPECT_EQ(taken, std::vector<std::uint32_t>{77});
    EXPECT_LE(looks, 4u);
    EXPECT_EQ(free.size(), kSlots - 1u);
  }
}

TEST(KvFreeSlotsDeathTest, HeaderThatChangesInAFreeSlot_EndsTheProcess) {
  Key listed{.low = 1, .high = 2};
  FreeSlots free;
  free.open({0, 4}, [&](std::uint32_t) { return std::optional(listed); });
  free.push(0);
  listed.low = 2;
  EXPECT_DEATH((void)free.pop(), "kNone");
}

// FreeSlots beside two lists that are searched.
struct Lists {
  static constexpr std::uint32_t kSlots = 24;

  explicit Lists(std::uint64_t seed) : random(seed) {
    free.open({0, 4, kSlots}, [this](std::uint32_t slot) {
      return headers.contains(slot) ? std::optional(headers[slot]) : std::nullopt;
    });
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) taken.insert(slot);
  }
  Key some_key() { return {.low = random.below(3), .high = random.below(2)}; }

  void push() {
    if (taken.empty()) return;
    const std::uint32_t slot = *taken.begin();
    taken.erase(slot);
    if (random.chance(0.5)) headers[slot] = some_key();
    const bool to_aside = random.chance(0.3);
    to_aside ? free.push_aside(slot) : free.push(slot);
    (to_aside ? aside : usable).push_back(slot);
  }
  static unsigned disk_of(std::uint32_t slot) { return slot < 4 ? 0 : 1; }
  double part(unsigned disk) const {
    const auto slots = std::ranges::count(usable, disk, disk_of);
    return static_cast<double>(slots) / (disk == 0 ? 4 : kSlots - 4);
  }
  void pop() {
    const bool from_aside = random.chance(0.5);
    auto& list = from_aside ? aside : usable;
    const unsigned disk = random.chance(0.5) ? 1 : 0;
    const bool any = !from_aside && random.chance(0.5);
    const bool fuller = part(0) < part(1);
    const auto slot = any ? free.pop() : from_aside ? free.pop_aside(disk) : free.pop(disk);
    ASSERT_EQ(slot.has_value(), std::ranges::any_of(list, [&](std::uint32_t s) {
                return any || disk_of(s) == disk;
              }));
    if (!slot) return;
    const unsigned emptiest = fuller ? 1 : 0;
    ASSERT_EQ(disk_of(*slot), any ? emptiest : from_aside ? disk_of(*slot) : disk);
    ASSERT_EQ(std::erase(list, *slot), 1u);
    taken.insert(*slot);
    headers.erase(*slot);
  }
  void set_aside() {
    const auto chosen = [part = random.below(4)](std::uint32_t slot) { return slot % 4 == part; };
    for (const unsigned disk : {0U, 1U}) free.set_aside_if(disk, chosen);
    std::ranges::copy_if(usable, std::back_inserter(aside), chosen);
    std::erase_if(usable, chosen);
  }
  void take_back() {
    for (const unsigned disk : {0U, 1U}) free.take_back(disk);
    usable.insert(usable.end(), aside.begin(), aside.end());
    aside.clear();
  }
  void take_listed() {
    const bool all = random.chance(0.2);
    const Key key = some_key();
    std::set<std::uint32_t> expected;
    for (auto* const list : {&usable, &aside}) {
      std::erase_if(*list, [&](std::uint32_t slot) {
        const bool goes = headers.contains(slot) && (all || headers[slot] == key);
        if (goes) expected.insert(slot);
        return goes;
      });
    }
    std::set<std::uint32_t> found;
    const auto find = [&](std::uint32_t slot) { found.insert(slot); };
    all ? free.take_listed(find) : free.take_listed(key, find);
    ASSERT_EQ(found, expected);
    taken.insert(found.begin(), found.end());
    for (const std::uint32_t slot : found) headers.erase(slot);
  }

  Random random;
  std::map<std::uint32_t, Key> headers;  // of some slots; few keys, so that chains are long
  FreeSlots free;
  std::vector<std::uint32_t> usable;
  std::vector<std::uint32_t> aside;
  std::set<std::uint32_t> taken;
};

TEST(KvFreeSlots, RandomCalls_AgreeWithLists) {
  constexpr std::array kSteps = {&Lists::push, &Lists::push,       &Lists::push,
                                 &Lists::pop,  &Lists::set_aside,  &Lists::take_back,
                                 &Lists::pop,  &Lists::take_listed};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Lists lists(seed);
    for (unsigned step = 0; step < 200; ++step) {
      (lists.*kSteps[lists.random.below(kSteps.size())])();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
      ASSERT_EQ(lists.free.size(), lists.usable.size()) << "seed " << seed;
      ASSERT_EQ(lists.free.aside(), lists.aside.size()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace headrace::kvcache
