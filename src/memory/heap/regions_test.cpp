// SPDX-License-Identifier: Apache-2.0
// Memory that a heap takes from the system and returns: budgets, statistics, region sizes.

#include "memory/heap/regions.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "memory/heap/heap_testing.h"
#include "support/child.h"

namespace headrace {
namespace {

TEST(Budget, CountsWhatFits) {
  Budget budget(10_B);
  EXPECT_TRUE(budget.take(6_B));
  EXPECT_FALSE(budget.take(5_B));
  EXPECT_FALSE(budget.take({~std::uint64_t{0}}));
  EXPECT_TRUE(budget.take(4_B));
  EXPECT_EQ(budget.used(), 10_B);
  budget.give(6_B);
  EXPECT_EQ(budget.used(), 4_B);
  EXPECT_EQ(budget.limit(), 10_B);
}

TEST(Budget, IsNeverOverdrawnByManyThreads) {
  Budget budget(1000_B);
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) taken += budget.take(1_B) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 1000);
  EXPECT_EQ(budget.used(), 1000_B);
}

TEST(Regions, AreTakenAsTheHeapGrows) {
  const auto heap = open_heap(HeapOptions{.region = 6_MiB});
  EXPECT_EQ(heap->stats().reserved, 0_B);
  heap->free(heap->allocate_bytes(100));
  EXPECT_EQ(heap->stats().reserved, 6_MiB);
  EXPECT_EQ(heap->stats().buffers, 1U);
}

struct Told final : HeapObserver {
  void took(std::span<const std::byte> memory) override {
    EXPECT_TRUE(there.emplace(memory.data(), memory.size()).second);
    const_cast<std::byte&>(memory.back()) = std::byte{1};
  }
  void giving(std::span<const std::byte> memory) override {
    EXPECT_EQ(there.at(memory.data()), memory.size());
    EXPECT_EQ(memory.back(), std::byte{1}) << "it is still there";
    there.erase(memory.data());
  }
  std::map<const std::byte*, std::size_t> there;
};

TEST(Regions, Observer_SeesThemAllocatedAndReleased) {
  Told told;
  auto heap = open_heap(HeapOptions{.region = 2_MiB, .observer = &told});
  void* const small = heap->allocate_bytes(100);
  void* const large = heap->allocate_bytes((3_MiB).value);
  EXPECT_EQ(told.there.size(), heap->stats().buffers);
  EXPECT_EQ(told.there.at(static_cast<const std::byte*>(large)), (3_MiB).value);
  EXPECT_EQ(test::status_of_child([&] {
              heap->free(large);
              return told.there.size() == 2;
            }),
            0)
      << "a child tells nothing";
  heap->free(large);
  EXPECT_EQ(told.there.size(), 1U);
  heap->free(small);
  heap.reset();
  EXPECT_TRUE(told.there.empty());
}

TEST(Regions, LargeObjectsCountTheirPagesAndReturnThemAtOnce) {
  const auto budget = std::make_shared<Budget>(64_MiB);
  const auto heap = open_heap(budget);
  void* const object = heap->allocate_bytes((10_MiB).value + 1);
  EXPECT_EQ(budget->used(), 10_MiB + 4_KiB);
  EXPECT_EQ(heap->usable_size(object), (10_MiB + 4_KiB).value);
  EXPECT_EQ(heap->stats().buffers, 1U);
  heap->free(object);
  EXPECT_EQ(budget->used(), 0_B);
  EXPECT_EQ(heap->stats().buffers, 0U);
}

TEST(Regions, ALargeAlignmentTakesAddressesNotMemory) {
  const auto heap = open_heap();
  void* const object = heap->allocate_bytes(100, (4_GiB).value);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(object) % (4_GiB).value, 0U);
  EXPECT_EQ(heap->stats().reserved, 4_KiB);
  heap->free(object);
}

TEST(Regions, WithLittleLeftGrowByLittle) {
  for (const Bytes limit : {Bytes{5 << 19}, 5_MiB}) {
    const auto budget = std::make_shared<Budget>(limit);
    const auto heap = open_heap(HeapOptions{.budget = budget, .region = 16_MiB});
    std::size_t bytes = 0;
    while (heap->allocate_bytes(1000) != nullptr) bytes += 1000;
    EXPECT_GT(bytes, limit.value / 2);
    EXPECT_LE(budget->used(), limit);
  }
}

TEST(Regions, WithLessLeftThanThePoolWantsAnObjectHasPagesOfItsOwn) {
  for (const std::size_t size : {std::size_t{9000}, std::size_t{100'000}, std::size_t{900'000}}) {
    const auto budget = std::make_shared<Budget>(4_MiB);
    const auto heap = open_heap(budget);
    std::vector<void*> objects;
    while (void* const object = heap->allocate_bytes(size)) objects.push_back(object);
    EXPECT_GT(objects.size() * size, (1_MiB).value) << size;
    for (void* const object : objects) {
      EXPECT_GE(heap->usable_size(object), size);
      heap->free(object);
    }
    EXPECT_LT(budget->used(), 4_MiB);
  }
}

TEST(Regions, ABudgetIsSharedByItsHeaps) {
  const auto budget = std::make_shared<Budget>(16_MiB);
  auto a = open_heap(budget);
  const auto b = open_heap(budget);
  EXPECT_NE(a->allocate_bytes((12_MiB).value), nullptr);
  EXPECT_EQ(b->allocate_bytes((12_MiB).value), nullptr);
  const Error error = b->last_error().value();
  EXPECT_EQ(error.code, ErrorCode::exhausted);
  EXPECT_NE(error.message.find("12 MiB of a budget of 16 MiB are used"), std::string::npos)
      << error.message;
  EXPECT_EQ(a->last_error(), std::nullopt);
  a.reset();
  EXPECT_NE(b->allocate_bytes((12_MiB).value), nullptr);
}

TEST(Regions, ASpentBudgetStillServesWhatIsFreed) {
  const auto budget = std::make_shared<Budget>(8_MiB);
  const auto heap = open_heap(budget);
  const auto bytes_until_full = [&](std::size_t size) {
    std::vector<void*> objects;
    while (void* const object = heap->allocate_bytes(size)) objects.push_back(object);
    EXPECT_LE(budget->used(), budget->limit());
    for (void* const object : objects) heap->free(object);
    return Bytes{objects.size() * size};
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_GT(bytes_until_full(1000), 7_MiB);
    EXPECT_GT(bytes_until_full(50'000), 4_MiB);
  }
}

}  // namespace
}  // namespace headrace
