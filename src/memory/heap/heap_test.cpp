// SPDX-License-Identifier: Apache-2.0
// Heap: as a memory resource and as an allocator, and the nodes of its memory.

#include "headrace/heap.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/mutex.h"
#include "headrace/buffer.h"
#include "headrace/random.h"
#include "memory/heap/heap_testing.h"
#include "tests/support/child.h"

namespace headrace {
namespace {

bool aligned(const void* object, std::size_t align) {
  return reinterpret_cast<std::uintptr_t>(object) % align == 0;
}

TEST(Heap, AlignsAndSizesAsAsked) {
  const auto heap = open_heap();
  for (std::size_t align = 1; align <= (4_MiB).value; align *= 2) {
    std::vector<std::pair<void*, std::size_t>> objects;
    for (const std::size_t size : {0U, 1U, 8U, 9U, 24U, 100U, 1000U, 4096U, 9000U, 70'000U,
                                   1'048'560U, 1'048'576U, 3'000'000U}) {
      void* const object = heap->allocate_bytes(size, align);
      ASSERT_NE(object, nullptr) << heap->last_error().value().message;
      EXPECT_TRUE(aligned(object, align)) << size << " by " << align;
      EXPECT_TRUE(heap->owns(object));
      EXPECT_GE(heap->usable_size(object), size);
      fill(object, heap->usable_size(object), static_cast<unsigned>(objects.size()));
      objects.emplace_back(object, heap->usable_size(object));
    }
    for (unsigned i = 0; i < objects.size(); ++i) {
      EXPECT_TRUE(filled(objects[i].first, objects[i].second, i));
      heap->free(objects[i].first);
    }
  }
}

// As when a CXL device goes offline while the process runs.
TEST(Heap, OfflineNodeThatWasNotRequested_IsNotNeeded) {
  Machine machine = this_host();
  machine.nodes.push_back(
      {.id = NodeId{999}, .kind = NodeKind::cxl, .reason = "test", .capacity = 1_GiB});
  Placement placement = Placement::on(NodeKind::dram);
  placement.strict = false;
  const auto heap = Heap::open(machine, placement).value();
  for (const std::size_t size : {100U, 5'000'000U}) {
    void* const object = heap->allocate_bytes(size);
    ASSERT_NE(object, nullptr) << heap->last_error().value().message;
    heap->free(object);
  }
}

TEST(Heap, PutsObjectsOnTheNodeOfItsPlacement) {
  const auto heap = open_heap();
  for (const std::size_t size : {16U, 1000U, 50'000U, 5'000'000U}) {
    auto* const object = static_cast<std::byte*>(heap->allocate_bytes(size));
    const Residency residency = where({object, size}).value();
    EXPECT_EQ(residency.absent, 0U);
    EXPECT_EQ(residency.pages.size(), 1U);
    EXPECT_EQ(residency.pages.at(first_node()), residency.total());
    heap->free(object);
  }
}

template <class Map>
void insert_find_erase(Heap& heap) {
  Map map(&heap);
  for (int i = 0; i < 5000; ++i) map.emplace(i, std::string(static_cast<std::size_t>(i % 99), 'x'));
  for (int i = 0; i < 5000; i += 2) map.erase(i);
  ASSERT_EQ(map.size(), 2500U);
  for (const auto& [key, text] : map) {
    EXPECT_EQ(text.size(), static_cast<std::size_t>(key % 99));
    EXPECT_TRUE(text.capacity() < 16 || heap.owns(text.data()));
  }
}

TEST(Heap, ServesStandardContainers) {
  const auto heap = open_heap();
  std::pmr::vector<int> numbers(heap.get());
  for (int i = 0; i < 1'000'000; ++i) numbers.push_back(i);
  for (int i = 0; i < 1'000'000; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(heap->owns(numbers.data()));
  insert_find_erase<std::pmr::map<int, std::pmr::string>>(*heap);
  insert_find_erase<std::pmr::unordered_map<int, std::pmr::string>>(*heap);
}

TEST(Heap, IsEqualOnlyToItself) {
  const auto a = open_heap();
  const auto b = open_heap();
  EXPECT_TRUE(a->is_equal(*a));
  EXPECT_FALSE(a->is_equal(*b));
  EXPECT_FALSE(a->is_equal(*std::pmr::new_delete_resource()));
}

TEST(Heap, ThrowsBadAllocOnlyAsAMemoryResource) {
  const auto heap = open_heap(std::make_shared<Budget>(4_MiB));
  EXPECT_EQ(heap->last_error(), std::nullopt);
  EXPECT_EQ(heap->allocate_bytes((8_MiB).value), nullptr);
  EXPECT_EQ(heap->last_error().value().code, ErrorCode::exhausted);
  EXPECT_THROW((void)heap->allocate((8_MiB).value, 16), std::bad_alloc);
  std::pmr::vector<char> bytes(heap.get());
  EXPECT_THROW(bytes.resize((8_MiB).value), std::bad_alloc);
}

TEST(Heap, SaysWhatTheSystemRefused) {
  const auto heap = open_heap();
  for (const std::size_t size : {std::size_t{1} << 50, std::size_t{1} << 57, SIZE_MAX - 7}) {
    EXPECT_EQ(heap->allocate_bytes(size), nullptr);
    EXPECT_EQ(heap->allocate_bytes(size, (2_MiB).value), nullptr);
    EXPECT_EQ(heap->last_error().value().code, ErrorCode::exhausted);
  }
  EXPECT_EQ(heap->stats().reserved, 0_B);
}

TEST(Heap, ImpossiblePlacements_AreRefused) {
  const auto code = [](const Placement& placement) {
    return Heap::open(this_host(), placement).error().code;
  };
  EXPECT_EQ(code(Placement::on(NodeId{777})), ErrorCode::absent);
  EXPECT_EQ(code(Placement{}), ErrorCode::invalid);
}

TEST(Heap, ReallocatesWithContents) {
  const auto heap = open_heap();
  void* object = nullptr;
  std::size_t kept = 0;
  for (const std::size_t size :
       {1U, 100U, 9000U, 500'000U, 2'000'000U, 1'900'000U, 5'000'000U, 100'000U, 10U}) {
    object = heap->reallocate(object, size);
    ASSERT_NE(object, nullptr);
    EXPECT_GE(heap->usable_size(object), size);
    EXPECT_TRUE(filled(object, std::min(kept, size), 7));
    fill(object, size, 7);
    kept = size;
  }
  EXPECT_EQ(heap->reallocate(object, std::size_t{1} << 50), nullptr);
  EXPECT_TRUE(filled(object, kept, 7));
  heap->free(object);
}

TEST(Heap, ShrinksWhereItIsWhenThereIsNoRoomToMove) {
  const auto heap = open_heap(std::make_shared<Budget>(8_MiB));
  void* const object = heap->allocate_bytes((6_MiB).value);
  fill(object, (6_MiB).value, 1);
  EXPECT_EQ(heap->reallocate(object, (5_MiB).value / 2), object);
  EXPECT_TRUE(filled(object, (5_MiB).value / 2, 1));
  EXPECT_EQ(heap->reallocate(object, (7_MiB).value), nullptr);
  EXPECT_TRUE(filled(object, (5_MiB).value / 2, 1));
  heap->free(object);
}

TEST(Heap, ClosesOverObjectsStillThere) {
  const auto budget = std::make_shared<Budget>(256_MiB);
  auto heap = open_heap(budget);
  for (int i = 0; i < 1000; ++i) (void)heap->allocate_bytes(static_cast<std::size_t>(i) * 10);
  void* const large = heap->allocate_bytes((3_MiB).value);
  EXPECT_EQ(Heap::owner(large), heap.get());
  heap.reset();
  EXPECT_EQ(budget->used(), 0_B);
  EXPECT_EQ(Heap::owner(large), nullptr);
}

TEST(Heap, EndsWithTheKeysOfTheProcessAndGivesThemBack) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Heap>> heaps;
    Result<std::unique_ptr<Heap>> heap = nullptr;
    while ((heap = Heap::open(this_host(), Placement::on(first_node()))) && heaps.size() < 5000) {
      heaps.push_back(*std::move(heap));
    }
    EXPECT_GT(heaps.size(), 500U);
    EXPECT_EQ(heap.error().code, ErrorCode::exhausted);
  }
}

struct Object {
  void* begin;
  std::size_t size;
  unsigned seed;
};

// Sizes uniform by logarithm, so that all paths are taken.
std::size_t some_size(Random& random) { return random.below(std::uint64_t{2} << random.below(22)); }

TEST(Heap, KeepsEveryByteUnderRandomOperations) {
  rc::check([](std::uint64_t seed) {
    Random random(seed);
    const auto budget = std::make_shared<Budget>(12_MiB);
    const auto heap = open_heap(budget);
    std::map<const std::byte*, Object> model;  // by their end
    for (unsigned i = 0; i < 200; ++i) {
      if (model.empty() || random.below(5) < 3) {
        const std::size_t size = some_size(random);
        const std::size_t align = std::size_t{1} << random.below(random.below(8) == 0 ? 18 : 7);
        auto* const begin = static_cast<std::byte*>(heap->allocate_bytes(size, align));
        if (begin == nullptr) continue;  // over budget
        RC_ASSERT(aligned(begin, align));
        const auto after = model.upper_bound(begin);  // the first object that ends after `begin`
        const bool apart = after == model.end() || begin + size <= after->second.begin;
        RC_ASSERT(apart);
        fill(begin, size, i);
        model[begin + std::max<std::size_t>(size, 1)] = {begin, size, i};
      } else {
        auto at = model.begin();
        std::advance(at, random.below(model.size()));
        const Object object = at->second;
        model.erase(at);
        RC_ASSERT(heap->owns(object.begin));
        RC_ASSERT(filled(object.begin, object.size, object.seed));
        heap->free(object.begin);
      }
      RC_ASSERT(budget->used() == heap->stats().reserved);
    }
    for (const auto& [end, object] : model) {
      RC_ASSERT(filled(object.begin, object.size, object.seed));
    }
  });
}

// Threads put objects into a shared array and free each other's objects.
TEST(Heap, LetsAnyThreadFreeWhatAnyAllocated) {
  const auto heap = open_heap();
  Mutex mutex;
  std::vector<Object> common;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (unsigned i = 0; i < 5000; ++i) {
        const std::size_t size = random.below(64) == 0 ? some_size(random) : random.below(2000);
        Object mine{heap->allocate_bytes(size), size, t + i};
        fill(mine.begin, size, mine.seed);
        {
          const MutexLock lock(mutex);
          common.push_back(mine);
          if (common.size() < 500) continue;
          std::swap(common[random.below(common.size())], common.back());
          mine = common.back();
          common.pop_back();
        }
        if (!filled(mine.begin, mine.size, mine.seed)) ++wrong;
        heap->free(mine.begin);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (const Object& object : common) {
    EXPECT_TRUE(filled(object.begin, object.size, object.seed));
    heap->free(object.begin);
  }
}

TEST(Heap, WorksInTheChildOfASingleThread) {
  const auto heap = open_heap();
  void* const object = heap->allocate_bytes(1000);
  fill(object, 1000, 1);
  EXPECT_EQ(test::status_of_child([&] {
              bool good = filled(object, 1000, 1);
              heap->free(object);
              for (unsigned i = 0; i < 3000; ++i) {
                void* const own = heap->allocate_bytes(i * 10);
                fill(own, i * 10, i);
                good = good && filled(own, i * 10, i);
                if (i % 2 == 0) heap->free(own);
              }
              return good;
            }),
            0);
  EXPECT_TRUE(filled(object, 1000, 1));
  heap->free(object);
}

// The only guarantee when other threads are in the heap during fork().
TEST(Heap, LetsTheChildOfManyThreadsUseItsObjects) {
  const auto heap = open_heap();
  void* const object = heap->allocate_bytes(1000);
  fill(object, 1000, 1);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) heap->free(heap->allocate_bytes(100'000));
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(test::status_of_child([&] {
                const bool good = filled(object, 1000, 1);
                fill(object, 1000, 2);
                return good && heap->owns(object) && filled(object, 1000, 2);
              }),
              0);
  }
  stop = true;
  other.join();
  EXPECT_TRUE(filled(object, 1000, 1));
  heap->free(object);
}

}  // namespace
}  // namespace headrace
