#include "cache/readers.h"

#include <gtest/gtest.h>

#include <thread>

#include "cache/entry.h"

namespace headrace {
namespace {

TEST(ReadersTest, AThreadThatEndedLeavesItsSlotsToTheNext) {
  Readers readers;
  Reader* first = nullptr;
  std::jthread([&] { first = readers.join(); }).join();
  EXPECT_EQ(readers.mine(), nullptr);
  EXPECT_EQ(readers.join(), first);
  EXPECT_EQ(readers.mine(), first);
  EXPECT_EQ(readers.join(), first);
  std::jthread([&] { EXPECT_NE(readers.join(), first); }).join();
}

TEST(ReadersTest, APinIsCountedOnceAndItsEndIsTold) {
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
  EXPECT_TRUE(readers.unpin(*slot)) << "nobody asked";
}

TEST(ReadersTest, WhoAsksAllIsToldOfEachEnd) {
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

TEST(ReadersTest, AnotherThreadLetsGoUnderTheLock) {
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
