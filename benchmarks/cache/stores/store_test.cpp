// SPDX-License-Identifier: Apache-2.0
// Every implementation returns right bytes, however it evicts, and keeps pinned blocks.
#include "benchmarks/cache/stores/store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "benchmarks/cache/stores/chase_store.h"
#include "benchmarks/cache/stores/headrace_store.h"
#include "benchmarks/cache/stores/sharded_store.h"
#include "benchmarks/cache/stores/thesis_store.h"
#include "core/sanitizers.h"
#include "headrace/random.h"
#ifdef HEADRACE_WITH_TBB
#include "benchmarks/cache/stores/tbb_store.h"
#endif
#ifdef HEADRACE_WITH_ROCKSDB
#include "benchmarks/cache/stores/rocksdb_store.h"
#endif

namespace headrace::cache_bench {
namespace {

constexpr std::uint64_t kBlocks = 2048;
constexpr std::uint64_t kBlock = 512;
// A part of each of 64 shards.
constexpr Bytes kBudget{512 * kBlock};

template <class S>
class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = S::make(source, kBudget);
    ASSERT_TRUE(made) << made.error().message;
    store = *std::move(made);
  }
  bool right(std::uint64_t block, const typename S::Pin& pin) const {
    const std::byte* bytes = pin.bytes();
    if (bytes == nullptr) return false;
    for (std::uint64_t at = 0; at < kBlock; at += 8) {
      if (!source.holds(block, at, bytes)) return false;
    }
    return true;
  }

  const Source source = Source::in_memory(kBlocks, kBlock);
  std::unique_ptr<S> store;
};

using Stores = testing::Types<HeadraceStore, ThesisStore, ShardedStore
#ifdef HEADRACE_WITH_TBB
                              ,
                              TbbStore
#endif
#ifdef HEADRACE_WITH_ROCKSDB
                              ,
                              RocksdbStore
#endif
                              >;
TYPED_TEST_SUITE(StoreTest, Stores);

// TSan does not see into libraries that were compiled without it.
template <class S>
constexpr bool seen_by_tsan() {
#ifdef HEADRACE_WITH_TBB
  if (std::is_same_v<S, TbbStore>) return false;
#endif
#ifdef HEADRACE_WITH_ROCKSDB
  if (std::is_same_v<S, RocksdbStore>) return false;
#endif
  return true;
}

TYPED_TEST(StoreTest, FindsWhatItRead) {
  EXPECT_TRUE(this->right(7, this->store->access(7)));
  EXPECT_EQ(this->store->misses(), 1U);
  const auto again = this->store->access(7);
  EXPECT_TRUE(again.ready());
  EXPECT_TRUE(this->right(7, again));
  EXPECT_EQ(this->store->misses(), 1U);
}

// Pins are taken and released at random, from four times as many blocks as there is space for.
template <class S, class Check>
bool random_operations(S& store, std::uint64_t seed, const Check& right) {
  struct Held {
    std::uint64_t block = 0;
    typename S::Pin pin;
  };
  Random random(seed);
  std::vector<Held> held;
  bool good = true;
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t block = random.chance(0.5) ? random.below(64) : random.below(kBlocks);
    held.push_back({block, store.access(block)});
    good = good && right(block, held.back().pin);
    if (held.size() < 100 && random.chance(0.6)) continue;
    std::swap(held[random.below(held.size())], held.back());
    good = good && right(held.back().block, held.back().pin);
    held.pop_back();
  }
  for (const Held& each : held) good = good && right(each.block, each.pin);
  return good;
}

TYPED_TEST(StoreTest, BytesAreRightUnderEviction) {
  const auto right = [this](std::uint64_t block, const auto& pin) {
    return this->right(block, pin);
  };
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    EXPECT_TRUE(random_operations(*this->store, seed, right)) << "seed " << seed;
  }
  EXPECT_GT(this->store->misses(), kBlocks);  // so blocks were evicted
  EXPECT_LT(this->store->misses(), 12'000U);  // and others stayed
}

TYPED_TEST(StoreTest, BytesAreRightForThreads) {
#ifdef HEADRACE_TSAN
  if (!seen_by_tsan<TypeParam>()) GTEST_SKIP() << "TSan does not see into its library";
#endif
  const auto right = [this](std::uint64_t block, const auto& pin) {
    return this->right(block, pin);
  };
  std::vector<int> good(3, 0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < good.size(); ++i) {
    threads.emplace_back([&, i] { good[i] = random_operations(*this->store, 10 + i, right); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(3, 1));
}

TYPED_TEST(StoreTest, AllBlocksPinned_ReadsTheSource) {
  std::vector<typename TypeParam::Pin> pins;
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    pins.push_back(this->store->access(block));
  }
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    ASSERT_TRUE(this->right(block, pins[block])) << block;
  }
  const auto first = this->store->access(0);
  EXPECT_TRUE(this->right(0, first));
}

TYPED_TEST(StoreTest, Batch_GivesTheSameAsSingleAccesses) {
  Random random(4);
  BatchOf<TypeParam> batch;
  for (int i = 0; i < 200; ++i) {
    std::array<std::uint32_t, kBatch> blocks{};
    for (std::uint32_t& block : blocks) block = static_cast<std::uint32_t>(random.below(kBlocks));
    batch.access(*this->store, blocks);
    for (std::size_t k = 0; k < kBatch; ++k) {
      ASSERT_NE(batch.bytes(k), nullptr);
      EXPECT_TRUE(this->source.holds(blocks[k], 8, batch.bytes(k)));
    }
    batch.release();
  }
}

TEST(ChaseStore, BlocksBeyondTheBudget_AreCopied) {
  const Source source = Source::in_memory(64, 64);
  ChaseStore store(source, Bytes{32 * 64});
  for (std::uint64_t block = 0; block < 64; ++block) {
    const ChaseStore::Pin pin = store.access(block);
    EXPECT_EQ(pin.ready(), block < 32);
    EXPECT_TRUE(source.holds(block, 56, pin.bytes()));
    EXPECT_NE(pin.bytes(), source.memory(block));
  }
  EXPECT_EQ(store.misses(), 32U);
}

}  // namespace
}  // namespace headrace::cache_bench
