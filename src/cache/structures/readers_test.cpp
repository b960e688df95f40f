// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/readers.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cache/structures/entry.h"

namespace headrace {
namespace {

TEST(ReadersTest, EndedThread_LeavesItsSlotsToTheNext) {
  Readers readers;
  Reader* first = nullptr;
  std::jthread([&] { first = readers.join(); }).join();
  EXPECT_EQ(readers.mine(), nullptr);
  EXPECT_EQ(readers.join(), first);
  EXPECT_EQ(readers.mine(), first);
  EXPECT_EQ(readers.join(), first);
  std::jthread([&] { EXPECT_NE(readers.join(), first); }).join();
}

TEST(ReadersTest, ThreadOfManyPins_HasSeveralReaders) {
  Readers readers;
  EntryPool pool;
  Reader* const first = readers.join();
  std::vector<PinSlot*> slots;
  for (std::size_t i = 0; i < Readers::kMostOfThread * Reader::kSlots; ++i) {
    PinSlot* slot = readers.mine()->free_slot();
    if (slot == nullptr) slot = readers.join_more()->free_slot();
    ASSERT_NE(slot, nullptr);
    readers.pin(*slot, pool.take());
    slots.push_back(slot);
  }
  EXPECT_EQ(readers.join_more(), nullptr);
  EXPECT_EQ(readers.pinned().size(), slots.size());
  EXPECT_TRUE(Readers::own(*slots.front()));
  EXPECT_TRUE(Readers::own(*slots.back()));
  EXPECT_TRUE(readers.unpin(*slots.front()));
  EXPECT_EQ(readers.join_more(), first) << "before there is one more";
  EXPECT_EQ(readers.mine(), first);
  std::jthread([&] { EXPECT_FALSE(Readers::own(*slots.back())); }).join();
}

TEST(ReadersTest, ReaderWithFewFreeSlots_IsNotTakenOver) {
  Readers readers;
  EntryPool pool;
  Reader* first = nullptr;
  std::jthread([&] {
    first = readers.join();
    for (std::size_t i = 0; i <= Reader::kSlots / 2; ++i) {
      readers.pin(first->slots[i], pool.take());
    }
  }).join();
  std::jthread([&] { EXPECT_NE(readers.join(), first); }).join();
  readers.unpin_elsewhere(first->slots[0]);
  // Now both readers are without a thread, and the other one has more free slots.
  std::jthread([&] {
    EXPECT_NE(readers.join(), first);
    std::jthread([&] { EXPECT_EQ(readers.join(), first) << "half of them are free"; }).join();
  }).join();
}

TEST(ReadersTest, Pin_IsCountedOnceAndItsReleaseReported) {
  Readers readers;
  Reader* const mine = readers.join();
  EntryPool pool;
  CacheEntry& entry = pool.take();
  PinSlot* const slot = mine->free_slot();
  readers.pin(*slot, entry);
  EXPECT_NE(mine->free_slot(), slot);
  int counted = 0;
  const auto any = [](const CacheEntry&) { return true; };
  const auto count = [&](CacheEntry& found) {
    EXPECT_EQ(&found, &entry);
    ++counted;
  };
  EXPECT_EQ(readers.pinned(), std::vector{&entry});
  readers.count(any, count);
  readers.count(any, count);
  EXPECT_EQ(counted, 1);
  EXPECT_TRUE(readers.pinned().empty()) << "counted elsewhere";
  EXPECT_FALSE(readers.unpin(*slot)) << "the lock's holder has to know";
  EXPECT_TRUE(readers.unpin_asked(*slot));
  readers.pin(*slot, entry);
  EXPECT_TRUE(readers.unpin(*slot)) << "it was not counted";
}

TEST(ReadersTest, Count_FencesBeforeEachReadAndDelaysNoOtherPins) {
  Readers readers;
  Reader* const mine = readers.join();
  Reader* other = nullptr;
  EntryPool pool;
  CacheEntry& entry = pool.take();
  CacheEntry& another = pool.take();
  readers.pin(mine->slots[0], entry);
  std::jthread([&] {
    other = readers.join();
    readers.pin(other->slots[0], another);
  }).join();
  const std::uint64_t fences = prepare_asymmetric_fence() ? 1 : 0;
  const std::uint64_t before = heavy_fences_passed();
  const auto none = [&](const CacheEntry&) {
    EXPECT_EQ(heavy_fences_passed(), before + fences);
    return false;
  };
  readers.fence();
  readers.count(none, [](CacheEntry&) { ADD_FAILURE() << "not wanted"; });
  EXPECT_EQ(heavy_fences_passed(), before + fences) << "nothing to look at again";
  int counted = 0;
  const auto this_one = [&](const CacheEntry& found) { return &found == &entry; };
  readers.count(this_one, [&](CacheEntry&) {
    EXPECT_EQ(heavy_fences_passed(), before + 2 * fences);
    EXPECT_EQ(other->marks, 0u) << "others release without the lock";
    ++counted;
  });
  EXPECT_EQ(counted, 1);
  EXPECT_FALSE(readers.unpin(mine->slots[0]));
  EXPECT_TRUE(readers.unpin_asked(mine->slots[0]));
  EXPECT_FALSE(readers.unpin_elsewhere(other->slots[0])) << "not counted";
}

TEST(ReadersTest, PinReleasedBetweenTheReads_IsNotCounted) {
  Readers readers;
  Reader* const mine = readers.join();
  EntryPool pool;
  CacheEntry& entry = pool.take();
  CacheEntry& another = pool.take();
  for (const std::size_t i : {0U, 1U, 2U}) readers.pin(mine->slots[i], entry);
  int looks = 0;
  const auto wanted = [&](const CacheEntry& found) {
    // All slots are read before the first is marked.
    if (++looks == 3) {
      EXPECT_TRUE(readers.unpin(mine->slots[0]));
      EXPECT_TRUE(readers.unpin(mine->slots[1]));
      readers.pin(mine->slots[1], another);
    }
    return &found == &entry;
  };
  int counted = 0;
  readers.count(wanted, [&](CacheEntry&) { ++counted; });
  EXPECT_EQ(counted, 1) << "the third slot";
  EXPECT_TRUE(readers.unpin(mine->slots[0])) << "no mark is left";
  EXPECT_TRUE(readers.unpin(mine->slots[1])) << "nor on what is another pin by now";
  EXPECT_FALSE(readers.unpin(mine->slots[2]));
  EXPECT_TRUE(readers.unpin_asked(mine->slots[2]));
}

TEST(ReadersTest, AskAll_ReportsEachRelease) {
  Readers readers;
  Reader* const mine = readers.join();
  EntryPool pool;
  CacheEntry& entry = pool.take();
  readers.ask_all(true);
  readers.pin(mine->slots[0], entry);
  EXPECT_FALSE(readers.unpin(mine->slots[0]));
  EXPECT_FALSE(readers.unpin_asked(mine->slots[0])) << "not counted";
  readers.ask_all(false);
  readers.pin(mine->slots[0], entry);
  EXPECT_TRUE(readers.unpin(mine->slots[0]));
}

TEST(ReadersTest, AnotherThread_ReleasesUnderTheLock) {
  Readers readers;
  EntryPool pool;
  CacheEntry& entry = pool.take();
  PinSlot* slot = nullptr;
  std::jthread([&] {
    slot = readers.join()->free_slot();
    readers.pin(*slot, entry);
    EXPECT_TRUE(Readers::own(*slot));
  }).join();
  EXPECT_FALSE(Readers::own(*slot));
  readers.count([](const CacheEntry&) { return true; }, [](CacheEntry&) {});
  EXPECT_TRUE(readers.unpin_elsewhere(*slot));
  EXPECT_EQ(slot->load(), nullptr);
}

}  // namespace
}  // namespace headrace
