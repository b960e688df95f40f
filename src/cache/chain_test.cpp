// SPDX-License-Identifier: Apache-2.0
// Chains of memories: blocks that are demoted and promoted. model_test.cpp has random operations.
#include "cache/chain.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "headrace/random.h"
#include "tests/support/cache_rig.h"
#include "tests/support/chain_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kBytes = 4096;

Extent block(const Source& source, std::uint64_t index) {
  return source.at(index * kBytes, kBytes);
}

// Copies whose source is the object itself.
std::size_t reads(const CacheRig& rig, const Source& source) {
  std::size_t count = 0;
  for (const Piece& piece : rig.fake->accepted()) {
    count += piece.from.object == &source.object() ? 1 : 0;
  }
  return count;
}

NodeId node_of(CacheRig& rig, const Extent& extent) {
  const Block found = rig.cache->access(extent);
  EXPECT_TRUE(found.hit());
  return found.node().value_or(kDisk);
}

void load_all(CacheRig& rig, const Source& source, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    rig.load(block(source, i));
    rig.settle();
  }
}

TEST(CacheChainTest, BlocksBeyondTheFirstMemory_AreHitsWithoutAReadOfTheSource) {
  Source source(24 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  load_all(rig, source, 20);
  EXPECT_EQ(reads(rig, source), 20u);
  EXPECT_EQ(rig.cache->stats().evictions, 0u);
  EXPECT_GE(rig.cache->stats().demotions, 12u);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Block found = rig.cache->access(block(source, i));
    EXPECT_TRUE(found.hit()) << i;
    EXPECT_TRUE(source.equals(found.extent(), *found.now())) << i;
    EXPECT_FALSE(source.holds(found.now()->data())) << i;
    rig.settle();
  }
  EXPECT_EQ(reads(rig, source), 20u);
  EXPECT_EQ(rig.cache->stats().blocks, 20u);
}

TEST(CacheChainTest, AccessOfADemotedBlock_PromotesIt) {
  Source source(12 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  load_all(rig, source, 12);
  EXPECT_EQ(node_of(rig, block(source, 0)), kHbm);
  rig.settle();
  EXPECT_EQ(node_of(rig, block(source, 0)), kDram);
  EXPECT_EQ(rig.cache->stats().promotions, 1u);
  EXPECT_EQ(rig.cache->stats().blocks, 12u) << "in one memory only";
  rig.settle();
  EXPECT_EQ(rig.cache->stats().bytes_used, Bytes{12 * kBytes});
}

constexpr std::uint64_t kFew = 4;  // hits whose promotions start together in a memory of 64 kFew

CacheRig::Options large_chain() {
  auto options = chain_of(64 * kFew * kBytes, {128 * kFew * kBytes});
  options.cache.slab = Bytes{64 * kFew * kBytes};
  return options;
}

TEST(CacheChainTest, HitsBelowALargeFirstMemory_ArePromotedTogether) {
  Source source(96 * kFew * kBytes);
  CacheRig rig(large_chain());
  load_all(rig, source, 96 * kFew);
  const std::size_t before = rig.fake->accepted().size();
  for (std::uint64_t i = 0; i < kFew; ++i) {
    EXPECT_EQ(rig.fake->accepted().size(), before) << i;
    EXPECT_EQ(node_of(rig, block(source, i)), kHbm) << i;
  }
  EXPECT_GE(rig.fake->accepted().size(), before + kFew);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().promotions, kFew);
  for (std::uint64_t i = 0; i < kFew; ++i) EXPECT_EQ(node_of(rig, block(source, kFew)), kHbm);
  rig.settle();
  EXPECT_EQ(node_of(rig, block(source, kFew)), kDram) << "hits of one block count too";
}

TEST(CacheChainTest, PromotionThatWaits_HoldsNoBytesOfADroppedBlock) {
  for (const int how : {0, 1, 2}) {
    Source source(96 * kFew * kBytes);
    CacheRig rig(large_chain());
    load_all(rig, source, 96 * kFew);
    ASSERT_EQ(node_of(rig, block(source, 0)), kHbm);
    if (how == 0) rig.cache->invalidate(whole(source.object()));
    if (how == 1) rig.cache->flush();
    if (how == 2) rig.cache->clear();
    EXPECT_EQ(rig.cache->stats().bytes_used, 0_B) << how;
  }
}

TEST(CacheChainTest, PromotionThatWaits_IsStartedWhenABudgetShrinks) {
  Source source(96 * kFew * kBytes);
  CacheRig rig(large_chain());
  load_all(rig, source, 96 * kFew);
  ASSERT_EQ(node_of(rig, block(source, 0)), kHbm);
  ASSERT_TRUE(rig.cache->resize(kHbm, 0_B));
  rig.settle();
  EXPECT_LE(rig.cache->stats().bytes_used, Bytes{64 * kFew * kBytes});
  EXPECT_EQ(rig.cache->stats().promotions, 1u);
}

TEST(CacheChainTest, WriterOfABlockWhosePromotionWaits_IsNotRefused_AndPromotesIt) {
  Source source(96 * kFew * kBytes);
  auto options = large_chain();
  options.cache.writable = true;
  CacheRig rig(options);
  load_all(rig, source, 96 * kFew);
  ASSERT_EQ(node_of(rig, block(source, 0)), kHbm);
  const AccessOptions now{.write = true, .lock_timeout = Nanoseconds{0}};
  for (std::uint64_t i = 0; i < kFew; ++i) {
    Block changed = rig.cache->access(block(source, i), now);
    ASSERT_TRUE(changed.wait_to_write().has_value()) << i;
    changed.wait_to_write()->front() = std::byte{99};
  }
  EXPECT_EQ(rig.cache->stats().promotions, 0u);
  ASSERT_TRUE(rig.cache->write_back());
  rig.settle();
  EXPECT_EQ(rig.cache->stats().promotions, kFew) << "after their hits, which were writes";
  EXPECT_EQ(node_of(rig, block(source, 0)), kDram);
}

TEST(CacheChainTest, ChangedBlocks_AreWrittenBackBeforeTheyMove) {
  Source source(24 * kBytes);
  auto options = chain_of(8 * kBytes, {16 * kBytes});
  options.cache.writable = true;
  CacheRig rig(options);
  const auto version = [](std::uint64_t i, int round) {
    return static_cast<std::byte>(100 * round + static_cast<int>(i));
  };
  for (const int round : {1, 2}) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      Block changed = rig.cache->access(block(source, i), {.write = true});
      rig.settle();
      const auto bytes = changed.wait_to_write();
      ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
      EXPECT_TRUE(round == 1 || bytes->front() == version(i, 1)) << i;
      std::ranges::fill(*bytes, version(i, round));
    }
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Block found = rig.cache->access(block(source, i));
      rig.settle();
      EXPECT_EQ(found.wait()->back(), version(i, round)) << i;
    }
  }
  EXPECT_GT(rig.cache->stats().demotions, 0u);
  EXPECT_GT(rig.cache->stats().promotions, 0u);
  ASSERT_TRUE(rig.cache->write_back());
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(source.bytes()[i * kBytes + 5], version(i, 2)) << i;
  }
}

TEST(CacheChainTest, ColdChangedBlocks_GoBack_ThoughFewOfTheFirstMemory) {
  Source source(24 * kBytes);
  auto options = chain_of(8 * kBytes, {16 * kBytes});
  options.cache.writable = true;
  CacheRig rig(options);
  for (std::uint64_t i = 0; i < 5; ++i) {
    Block changed = rig.cache->access(block(source, i), {.write = true});
    rig.settle();
    ASSERT_TRUE(changed.wait_to_write().has_value());
  }
  ASSERT_EQ(rig.cache->stats().bytes_dirty, Bytes{5 * kBytes});
  for (std::uint64_t i = 5; i < 24; ++i) {
    rig.load(block(source, i));
    rig.settle();
  }
  EXPECT_EQ(rig.cache->stats().bytes_dirty, 0_B);
}

// A reader's Block keeps writers out, as without a chain.
TEST(CacheChainTest, WriterOfADemotedBlock_WaitsForTheBlocksThatHoldIt) {
  for (const std::uint64_t hits : {1, 3}) {
    Source source(12 * kBytes);
    auto options = chain_of(8 * kBytes, {16 * kBytes});
    options.cache.writable = true;
    CacheRig rig(options);
    load_all(rig, source, 12);
    const AccessOptions now{.write = true, .lock_timeout = Nanoseconds{0}};
    std::vector<Block> held;
    for (std::uint64_t i = 0; i < hits; ++i) {
      held.push_back(rig.cache->access(block(source, 0)));
      rig.settle();
      EXPECT_EQ(held.back().node(), kHbm);
    }
    EXPECT_FALSE(rig.cache->access(block(source, 0), now).wait_to_write().has_value());
    EXPECT_EQ(rig.cache->stats().promotions, 0u);
    held.clear();
    rig.settle();
    EXPECT_EQ(rig.cache->stats().promotions, 1u);
    EXPECT_TRUE(rig.cache->access(block(source, 0), now).wait_to_write().has_value());
  }
}

TEST(CacheChainTest, BlockReadDuringItsPromotion_StaysWhereItsReaderKeepsWritersOut) {
  Source source(12 * kBytes);
  auto options = chain_of(8 * kBytes, {16 * kBytes});
  options.cache.writable = true;
  CacheRig rig(options);
  load_all(rig, source, 12);
  rig.fake->hold(true);
  (void)rig.cache->access(block(source, 0));
  rig.mover->poll();
  const Block held = rig.cache->access(block(source, 0));
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().promotions, 0u);
  const AccessOptions now{.write = true, .lock_timeout = Nanoseconds{0}};
  EXPECT_FALSE(rig.cache->access(block(source, 0), now).wait_to_write().has_value());
}

TEST(CacheChainTest, FirstMemoryThatGivesNothing_IsCounted_AndTheNextOneServes) {
  Source source(12 * kBytes);
  auto options = chain_of(8 * kBytes, {16 * kBytes});
  options.cache.allocate = [made = options.cache.allocate](NodeId node, Bytes bytes) {
    if (node == kHbm) return made(node, bytes);
    return Result<std::shared_ptr<const Object>>(fail(ErrorCode::exhausted, "no such memory"));
  };
  CacheRig rig(options);
  load_all(rig, source, 12);
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(node_of(rig, block(source, i)), kHbm) << i;
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
  EXPECT_GE(rig.cache->stats().slab_failures, 1u);
}

TEST(CacheChainTest, HolderOfAPromotedBlock_KeepsItsBytes) {
  Source source(12 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  load_all(rig, source, 12);
  const Block held = rig.cache->access(block(source, 0));
  rig.settle();
  EXPECT_EQ(held.state(), BlockState::evicting);
  EXPECT_TRUE(source.equals(held.extent(), *held.now()));
  const Block again = rig.cache->access(block(source, 0));
  EXPECT_NE(again.now()->data(), held.now()->data());
  EXPECT_TRUE(source.equals(again.extent(), *again.now()));
}

TEST(CacheChainTest, LastMemory_Evicts_AndNoBudgetIsExceeded) {
  Source source(64 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {8 * kBytes, 8 * kBytes}));
  Random random(7);
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t index = random.below(64);
    const Block found = rig.cache->access(block(source, index));
    rig.settle();
    ASSERT_TRUE(source.equals(found.extent(), *found.wait()));
    ASSERT_LE(rig.cache->stats().bytes_used, Bytes{24 * kBytes});
  }
  const CacheStats stats = rig.cache->stats();
  EXPECT_GT(stats.evictions, 0u);
  EXPECT_GT(stats.promotions, 0u);
  EXPECT_EQ(stats.refusals, 0u);
  EXPECT_GE(stats.blocks, 20u) << "all memories are used";
}

TEST(CacheChainTest, BlockInvalidatedDuringItsMove_IsReadAnew) {
  for (const bool up : {false, true}) {
    for (const int how : {0, 1, 2}) {
      Source source(12 * kBytes);
      CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
      load_all(rig, source, up ? 12 : 6);
      rig.settle();
      rig.fake->hold(true);
      if (up) {
        (void)rig.cache->access(block(source, 0));
      } else {
        (void)rig.cache->access(block(source, 6));
        (void)rig.cache->access(block(source, 7));
      }
      rig.mover->poll();
      ASSERT_GT(rig.fake->in_flight(), 0u);
      std::ranges::fill(source.bytes(), std::byte{99});
      for (std::uint64_t i = 0; how == 0 && i < 12; ++i) rig.cache->invalidate(block(source, i));
      if (how == 1) rig.cache->flush();
      if (how == 2) rig.cache->clear();
      rig.fake->hold(false);
      rig.settle();
      EXPECT_EQ(rig.cache->stats().blocks, 0u) << "up " << up << ", how " << how;
      EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
      for (std::uint64_t i = 0; i < 12; ++i) {
        const Block found = rig.cache->access(block(source, i));
        EXPECT_FALSE(found.hit());
        rig.settle();
        EXPECT_EQ((*found.wait())[0], std::byte{99}) << i;
      }
    }
  }
}

TEST(CacheChainTest, FailedMoves_LoseNothing_AndMakeSpace) {
  Source source(64 * kBytes);
  auto options = chain_of(8 * kBytes, {16 * kBytes});
  bool broken = true;
  options.fake.script = [&](const Piece& piece, std::uint64_t) -> Status {
    if (broken && piece.from.object != &source.object()) {
      return fail(ErrorCode::io, "a move that fails");
    }
    return {};
  };
  CacheRig rig(options);
  load_all(rig, source, 40);
  CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.demotions, 0u);
  EXPECT_EQ(stats.refusals, 0u);
  EXPECT_EQ(stats.failures, 0u) << "no copy that an access waited for";
  EXPECT_GT(stats.evictions, 0u);
  broken = false;
  load_all(rig, source, 20);
  broken = true;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Block found = rig.cache->access(block(source, i));
    rig.settle();
    EXPECT_TRUE(source.equals(found.extent(), *found.wait())) << i;
  }
  EXPECT_EQ(rig.cache->stats().promotions, 0u);
}

TEST(CacheChainTest, BlockLargerThanTheFirstMemory_IsKeptBelow) {
  Source source(64 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {32 * kBytes}));
  const Extent large = source.at(0, 16 * kBytes);
  rig.load(large);
  EXPECT_EQ(node_of(rig, large), kHbm);
  rig.settle();
  EXPECT_EQ(node_of(rig, large), kHbm);
}

TEST(CacheChainTest, HeldBlocks_AreNotDemoted) {
  Source source(64 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 8; ++i) {
    held.push_back(rig.cache->access(block(source, i)));
    rig.settle();
  }
  for (std::uint64_t i = 8; i < 40; ++i) rig.load(block(source, i));
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(held[i].state(), BlockState::ready) << i;
    EXPECT_TRUE(source.equals(held[i].extent(), *held[i].now())) << i;
  }
}

TEST(CacheChainTest, BlockHeldDuringItsDemotion_Stays) {
  Source source(16 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  load_all(rig, source, 6);
  rig.fake->hold(true);
  (void)rig.cache->access(block(source, 6));
  rig.mover->poll();
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 6; ++i) held.push_back(rig.cache->access(block(source, i)));
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().demotions, 0u);
  for (const Block& one : held) EXPECT_EQ(one.state(), BlockState::ready);
}

TEST(CacheChainTest, MissWhileTheLastMemoryIsHeld_TakesABlockOnItsWayDown) {
  Source source(8 * kBytes);
  CacheRig rig(chain_of(kBytes, {kBytes}));
  load_all(rig, source, 2);
  const Block held = rig.cache->access(block(source, 1));
  ASSERT_EQ(held.node(), kHbm);
  for (std::uint64_t i = 2; i < 8; ++i) {
    rig.settle();
    const Block found = rig.cache->access(block(source, i));
    rig.settle();
    ASSERT_NE(found.state(), BlockState::absent) << i << ": refused";
    EXPECT_TRUE(source.equals(found.extent(), *found.wait()));
  }
  EXPECT_TRUE(source.equals(held.extent(), *held.now()));
}

TEST(CacheChainTest, MissesFasterThanTheMoves_EvictNothing) {
  Source source(12 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  load_all(rig, source, 6);
  rig.fake->hold(true);
  std::vector<Block> blocks;
  for (std::uint64_t i = 6; i < 12; ++i) blocks.push_back(rig.cache->access(block(source, i)));
  EXPECT_EQ(rig.cache->stats().evictions, 0u);
  EXPECT_EQ(rig.cache->stats().blocks, 12u);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().evictions, 0u);
}

TEST(CacheChainTest, ReleaseInALowerMemory_EndsAWaitForSpace) {
  Source source(8 * kBytes);
  auto options = chain_of(2 * kBytes, {2 * kBytes});
  options.poller = true;
  CacheRig rig(options);
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 4; ++i) {
    held.push_back(rig.cache->access(block(source, i)));
    ASSERT_TRUE(held.back().wait().has_value());
  }
  ASSERT_EQ(held[3].node(), kHbm);
  std::atomic<bool> waits{false};
  const std::function<bool()> asked = [&] {
    waits = true;
    return false;
  };
  std::jthread waiter([&] {
    const AccessOptions patient{.space_timeout = std::chrono::seconds{20}, .stop = &asked};
    EXPECT_NE(rig.cache->access(block(source, 5), patient).state(), BlockState::absent);
  });
  while (!waits.load()) std::this_thread::yield();
  held.pop_back();
}

TEST(CacheChainTest, LargeBlockThatFindsNoSpace_NamesAMemoryThatIsLargeEnough) {
  Source source(16 * kBytes);
  CacheRig rig(chain_of(2 * kBytes, {4 * kBytes}));
  const Block held = rig.cache->access(source.at(0, 4 * kBytes));
  ASSERT_EQ(held.state(), BlockState::filling);
  const Opaque other(64_KiB);  // without bytes of its own to fall back to
  const auto why = [&](std::uint64_t blocks) {
    const Block refused = rig.cache->access(whole(other).part(0, Bytes{blocks * kBytes}));
    return refused.wait().error().message;
  };
  EXPECT_NE(why(4).find("no space for 16 KiB on node 8"), std::string::npos) << why(4);
  EXPECT_NE(why(5).find("exceeds the budget"), std::string::npos) << why(5);
}

TEST(CacheChainTest, PrefetchedBlockThatMovedUnused_IsCountedAtItsFirstUse) {
  Source source(12 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  {
    const Prefetch plan = rig.cache->prefetch(std::vector{block(source, 0)}, {});
    rig.settle();
  }
  for (std::uint64_t i = 1; i < 12; ++i) {
    rig.load(block(source, i));
    rig.settle();
  }
  for (int i = 0; i < 3; ++i) {
    (void)rig.cache->access(block(source, 0));
    rig.settle();
  }
  EXPECT_EQ(rig.cache->stats().first_uses, 1u);
}

TEST(CacheChainTest, OneAccess_StartsABoundedNumberOfMoves) {
  constexpr std::uint64_t kCount = 200;
  Source source(kCount * kBytes);
  CacheRig rig(chain_of(kBytes, {kCount * kBytes}));
  ASSERT_TRUE(rig.cache->resize(kDram, 0_B));
  load_all(rig, source, kCount);
  ASSERT_TRUE(rig.cache->resize(kDram, Bytes{2 * kCount * kBytes}));
  std::vector<Extent> all;
  for (std::uint64_t i = 0; i < kCount; ++i) all.push_back(block(source, i));
  std::vector<Block> blocks(kCount);
  rig.fake->hold(true);
  rig.cache->access(all, blocks, {});
  const std::size_t before = rig.fake->accepted().size();
  EXPECT_LE(before, kCount + 64);
  (void)rig.cache->access(all[0]);
  EXPECT_GT(rig.fake->accepted().size(), before) << "the next one goes on";
  rig.fake->hold(false);
  rig.settle();
  blocks.clear();
  (void)rig.cache->access(all[0]);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().promotions, kCount);
}

TEST(CacheChainTest, Plan_MovesItsBlocksUpBeforeTheirUse) {
  Source source(32 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {32 * kBytes}));
  load_all(rig, source, 24);
  const std::size_t before = reads(rig, source);
  std::vector<Extent> order;
  for (std::uint64_t i = 0; i < 24; ++i) order.push_back(block(source, i));
  const Prefetch plan = rig.cache->prefetch(order, {.window = Bytes{4 * kBytes}});
  std::size_t first = 0;
  for (const Extent& extent : order) {
    rig.settle();
    const Block found = rig.cache->access(extent, {.plan = &plan});
    EXPECT_TRUE(found.hit());
    first += found.node() == kDram ? 1 : 0;
    EXPECT_TRUE(source.equals(extent, *found.now()));
  }
  EXPECT_EQ(reads(rig, source), before);
  EXPECT_EQ(plan.progress().used, 24u);
  EXPECT_GE(first, 20u);
}

TEST(CacheChainTest, ShrunkMemories_FitTheirBudgets_AndGrowAgain) {
  Source source(64 * kBytes);
  CacheRig rig(chain_of(8 * kBytes, {16 * kBytes}));
  load_all(rig, source, 24);
  ASSERT_TRUE(rig.cache->resize(kHbm, Bytes{2 * kBytes}));
  ASSERT_TRUE(rig.cache->resize(kDram, Bytes{4 * kBytes}));
  rig.settle();
  EXPECT_LE(rig.cache->stats().bytes_used, Bytes{6 * kBytes});
  load_all(rig, source, 24);
  EXPECT_LE(rig.cache->stats().bytes_used, Bytes{6 * kBytes});
  ASSERT_TRUE(rig.cache->resize(kDram, Bytes{16 * kBytes}));
  load_all(rig, source, 24);
  EXPECT_GT(rig.cache->stats().bytes_used, Bytes{12 * kBytes});
}

TEST(CacheChainTest, UnsupportedChains_AreRefusedWithTheReason) {
  CacheRig rig;
  const auto why = [&](CacheOptions options) {
    const auto made = Cache::create(*rig.mover, std::move(options));
    EXPECT_FALSE(made.has_value());
    return made ? "" : made.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(why({.budgets = {{kDram, 1_MiB}, {kHbm, 1_MiB}}, .chain = {{kDisk, 1_MiB}}}), "2 budgets");
  has(why({.budgets = {{kDram, 1_MiB}}, .chain = {{kDisk, 1_MiB}}}), "no CPU can address");
  has(why({.budgets = {{kDram, 1_MiB}}, .chain = {{kDram, 1_MiB}}}), "two budgets");
  has(why({.budgets = {{kDram, 1_MiB}}, .chain = {{kHbm, 0_B}}}), "budget of 0");
  has(why({.chain = {{kHbm, 1_MiB}}}), "0 budgets");
  has(why({.budgets = {{NodeId{77}, 1_MiB}}, .chain = {{kHbm, 1_MiB}}}), "77");
}

}  // namespace
}  // namespace headrace
