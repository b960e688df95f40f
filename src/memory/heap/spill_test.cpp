// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "headrace/heap.h"
#include "memory/heap/heap_testing.h"

namespace headrace {
namespace {

constexpr std::size_t kBig = (2_MiB).value;

// A first heap that holds four big objects, a second that holds two.
struct Chain {
  std::unique_ptr<Heap> first = open_heap(std::make_shared<Budget>(8_MiB));
  std::unique_ptr<Heap> second = open_heap(std::make_shared<Budget>(4_MiB));
  SpillChain chain{{first.get(), second.get()}};
};

TEST(SpillChain, FillsItsHeapsInOrder) {
  Chain heaps;
  std::vector<void*> objects;
  while (void* const object = heaps.chain.allocate_bytes(kBig)) objects.push_back(object);
  ASSERT_EQ(objects.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(heaps.first->owns(objects[i]), i < 4) << i;
  EXPECT_EQ(heaps.second->last_error().value().code, ErrorCode::exhausted);
  EXPECT_THROW((void)heaps.chain.allocate(kBig), std::bad_alloc);

  // After a free, the first heap has space again.
  heaps.chain.free(objects[1]);
  objects[1] = heaps.chain.allocate_bytes(kBig);
  EXPECT_TRUE(heaps.first->owns(objects[1]));
  heaps.chain.free(objects[5]);
  objects[5] = heaps.chain.allocate_bytes(kBig);
  EXPECT_TRUE(heaps.second->owns(objects[5]));
  for (void* const object : objects) heaps.chain.free(object);
  EXPECT_EQ(heaps.first->stats().reserved + heaps.second->stats().reserved, 0_B);
}

TEST(SpillChain, MayEndOnADisk) {
  std::string folder = std::filesystem::temp_directory_path() / "headrace-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  {
    const Machine machine = Machine::discover({.storage = {folder}}).value();
    const auto memory = open_heap(std::make_shared<Budget>(8_MiB));
    const auto disk = Heap::open(machine, Placement::on(NodeKind::storage)).value();
    EXPECT_EQ(machine.find(disk->placement().nodes.front().node)->kind, NodeKind::storage);
    auto* const shared = static_cast<std::byte*>(disk->allocate_bytes(1000));
    EXPECT_EXIT(
        {
          ::signal(SIGSEGV, SIG_DFL);
          *shared = std::byte{1};
        },
        testing::KilledBySignal(SIGSEGV), "")
        << "a child would change what its parent has";
    disk->free(shared);
    SpillChain chain({memory.get(), disk.get()});
    std::vector<void*> objects;
    std::size_t on_disk = 0;
    for (unsigned i = 0; i < 20'000; ++i) {
      objects.push_back(chain.allocate_bytes(1000));
      ASSERT_NE(objects.back(), nullptr);
      fill(objects.back(), 1000, i);
      on_disk += disk->owns(objects.back()) ? 1 : 0;
    }
    EXPECT_GT(on_disk, 10'000U);
    EXPECT_LT(on_disk, 15'000U);
    for (unsigned i = 0; i < objects.size(); ++i) {
      EXPECT_TRUE(filled(objects[i], 1000, i));
      chain.free(objects[i]);
    }
  }
  EXPECT_TRUE(std::filesystem::remove(folder)) << "nothing is left in it";
}

TEST(SpillChain, AsksAFullHeapForSmallerObjectsAndAgainAfterAWhile) {
  Chain heaps;
  std::vector<void*> objects;
  for (int i = 0; i < 3; ++i) objects.push_back(heaps.chain.allocate_bytes(kBig));
  void* const large = heaps.chain.allocate_bytes(kBig + 1);
  EXPECT_TRUE(heaps.second->owns(large));
  void* const small = heaps.chain.allocate_bytes(kBig);
  EXPECT_TRUE(heaps.first->owns(small));
  heaps.chain.free(large);
  // Freed directly, not through the chain, which must find it out by asking again.
  for (void* const object : objects) heaps.first->free(object);
  int asked = 1;
  for (void* object = heaps.chain.allocate_bytes(kBig + 1); !heaps.first->owns(object);
       object = heaps.chain.allocate_bytes(kBig + 1)) {
    ASSERT_LE(++asked, 1024);
    heaps.chain.free(object);
  }
  EXPECT_GT(asked, 1000);
}

TEST(SpillChain, ServesContainersOfManyThreads) {
  const auto first = open_heap(std::make_shared<Budget>(4_MiB));
  const auto second = open_heap();
  SpillChain chain({first.get(), second.get()});
  EXPECT_TRUE(chain.is_equal(chain));
  EXPECT_FALSE(chain.is_equal(*first));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        std::pmr::vector<std::pmr::vector<int>> rows(&chain);
        for (int i = 0; i < 2000; ++i) rows.emplace_back(300, i);
        for (int i = 0; i < 2000; ++i) ASSERT_EQ(rows[static_cast<std::size_t>(i)][299], i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(first->stats().reserved, 0_B);
  EXPECT_GT(second->stats().reserved, 0_B);
}

TEST(SpillChain, EndsTheProgramAtMisuse) {
  Chain heaps;
  const auto other = open_heap();
  void* const object = other->allocate_bytes(10);
  EXPECT_DEATH(heaps.chain.free(object), "CHECK failed");
  EXPECT_DEATH(SpillChain({}), "CHECK failed");
  other->free(object);
}

}  // namespace
}  // namespace headrace
