// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/thread_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace headrace {
namespace {

TEST(SizeClasses, HoldTheirSizesAndWasteLessThanAQuarter) {
  for (std::size_t size = 0; size <= kCachedBytes; ++size) {
    const std::size_t size_class = class_for(size);
    ASSERT_LT(size_class, kSizeClasses) << size;
    EXPECT_GE(class_bytes(size_class), size);
    EXPECT_TRUE(size_class == 0 || class_bytes(size_class - 1) < size) << size;
    EXPECT_LT(class_bytes(size_class) - size, std::max<std::size_t>(17, size / 4)) << size;
    if (size < 16) continue;
    EXPECT_LE(class_bytes(class_within(size)), size);
    if (class_within(size) + 1 < kSizeClasses) {
      EXPECT_GT(class_bytes(class_within(size) + 1), size);
    }
  }
}

// An allocator of one class that counts the objects it gave out.
struct Pool {
  static constexpr std::size_t kClass = 3;
  using Cell = std::array<std::byte, class_bytes(kClass)>;

  void* allocate() {
    const MutexLock lock(mutex);
    cells.push_back(std::make_unique<Cell>());
    ++out;
    return cells.back().get();
  }
  static void release(void* self, void*) {
    auto* const pool = static_cast<Pool*>(self);
    const MutexLock lock(pool->mutex);
    --pool->out;
  }
  int given() {
    const MutexLock lock(mutex);
    return out;
  }

  Mutex mutex;
  std::vector<std::unique_ptr<Cell>> cells GUARDED_BY(mutex);
  int out GUARDED_BY(mutex) = 0;
};

TEST(ThreadCache, GivesEachObjectBackOnceLastFirst) {
  Pool pool;
  CacheSlot slot(&pool, Pool::release);
  EXPECT_EQ(slot.pop(Pool::kClass), nullptr);
  EXPECT_FALSE(slot.empty());
  std::vector<void*> objects;
  for (int i = 0; i < 1000; ++i) {
    objects.push_back(pool.allocate());
    slot.push(Pool::kClass, objects.back());
  }
  EXPECT_EQ(pool.given(), 1000);
  EXPECT_EQ(slot.pop(Pool::kClass), objects.back());
  EXPECT_EQ(slot.pop(Pool::kClass + 1), nullptr);
  std::set<void*> popped = {objects.back()};
  while (void* const object = slot.pop(Pool::kClass)) EXPECT_TRUE(popped.insert(object).second);
  EXPECT_EQ(popped, std::set<void*>(objects.begin(), objects.end()));
}

TEST(ThreadCache, SharesFullStacksBetweenThreads) {
  Pool pool;
  CacheSlot slot(&pool, Pool::release);
  for (int i = 0; i < 1000; ++i) slot.push(Pool::kClass, pool.allocate());
  int popped = 0;
  std::thread([&] {
    while (slot.pop(Pool::kClass) != nullptr) ++popped;
  }).join();
  EXPECT_GT(popped, 900);
  EXPECT_LE(popped, 1000);
  EXPECT_TRUE(slot.empty());
  EXPECT_EQ(pool.given(), popped);
}

TEST(ThreadCache, ManyFreedObjects_CacheStaysBounded) {
  Pool pool;
  CacheSlot slot(&pool, Pool::release);
  for (int i = 0; i < 100'000; ++i) slot.push(Pool::kClass, pool.allocate());
  EXPECT_LT(pool.given() * class_bytes(Pool::kClass), std::size_t{600} << 10);
  EXPECT_TRUE(slot.empty());
  EXPECT_EQ(pool.given(), 0);
}

TEST(ThreadCache, IsEmptiedWhenItsThreadEnds) {
  Pool pool;
  CacheSlot slot(&pool, Pool::release);
  std::thread([&] {
    for (int i = 0; i < 20; ++i) slot.push(Pool::kClass, pool.allocate());
    EXPECT_EQ(pool.given(), 20);
  }).join();
  EXPECT_EQ(pool.given(), 0);
}

TEST(ThreadCache, ForgetsHeapsThatWereClosed) {
  for (int round = 0; round < 3; ++round) {
    Pool pool;
    CacheSlot slot(&pool, Pool::release);
    EXPECT_EQ(slot.pop(Pool::kClass), nullptr);
    for (int i = 0; i < 20; ++i) slot.push(Pool::kClass, pool.allocate());
  }
}

TEST(ThreadCache, MoreHeapsThanSlots_RestWorksUncached) {
  Pool pool;
  std::vector<std::unique_ptr<CacheSlot>> slots;
  for (std::size_t i = 0; i <= kCachedHeaps; ++i) {
    slots.push_back(std::make_unique<CacheSlot>(&pool, Pool::release));
    slots.back()->push(Pool::kClass, pool.allocate());
  }
  // Heaps of other tests may be open.
  EXPECT_GT(pool.given(), 0);
  EXPECT_LE(pool.given(), static_cast<int>(kCachedHeaps));
  EXPECT_EQ(slots.back()->pop(Pool::kClass), nullptr);
  EXPECT_NE(slots.front()->pop(Pool::kClass), nullptr);
}

TEST(ThreadCache, PassesObjectsThroughManyThreadsWithoutLoss) {
  Pool pool;
  CacheSlot slot(&pool, Pool::release);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<void*> mine;
      for (int i = 0; i < 20'000; ++i) {
        if ((i / 200 + t) % 2 == 0) {
          void* const object = slot.pop(Pool::kClass);
          mine.push_back(object != nullptr ? object : pool.allocate());
          *static_cast<int*>(mine.back()) = t;
        } else if (!mine.empty()) {
          EXPECT_EQ(*static_cast<int*>(mine.back()), t);
          slot.push(Pool::kClass, mine.back());
          mine.pop_back();
        }
      }
      for (void* const object : mine) slot.push(Pool::kClass, object);
    });
  }
  for (std::thread& thread : threads) thread.join();
  slot.empty();
  EXPECT_EQ(pool.given(), 0);
}

}  // namespace
}  // namespace headrace
