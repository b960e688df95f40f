// SPDX-License-Identifier: Apache-2.0
#include "cache/candidates.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cache/blocks.h"
#include "headrace/random.h"
#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kUse = 4096;

// Belady's optimum: the fewest blocks that a cache of `capacity` blocks reads for these uses.
std::size_t fewest_reads(const std::vector<std::size_t>& uses, std::size_t capacity) {
  std::vector<std::size_t> next(uses.size());
  std::map<std::size_t, std::size_t> last;
  for (std::size_t i = uses.size(); i-- > 0;) {
    const auto later = last.find(uses[i]);
    next[i] = later == last.end() ? uses.size() + uses[i] : later->second;
    last[uses[i]] = i;
  }
  std::set<std::pair<std::size_t, std::size_t>> cached;  // (next use, block)
  std::size_t reads = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (cached.erase({i, uses[i]}) == 0) {
      ++reads;
      if (cached.size() == capacity) cached.erase(std::prev(cached.end()));
    }
    cached.emplace(next[i], uses[i]);
  }
  return reads;
}

// A cache in which time passes only between uses, so that each run is the same.
class CandidatesTest : public ::testing::Test {
 protected:
  CandidatesTest() = default;

  CacheRig& make(std::uint64_t blocks) {
    rig_.emplace(CacheRig::Options{
        .budget = Bytes{blocks * kUse}, .clock = &clock_, .waiting = &waiting_, .observe = false});
    return *rig_;
  }
  std::vector<Extent> plan_of(const std::vector<std::size_t>& uses) const {
    std::vector<Extent> plan;
    for (const std::size_t use : uses) plan.push_back(source_.at(use * kUse, kUse));
    return plan;
  }
  void use(const Extent& extent, const Prefetch* plan) {
    {
      const Block block = rig_->cache->access(extent, {.plan = plan});
      rig_->settle();
      const auto bytes = block.wait();
      ASSERT_TRUE(bytes.has_value());
      EXPECT_TRUE(source_.equals(extent, *bytes));
    }
    clock_.advance(std::chrono::microseconds{100});
    rig_->settle();
  }
  // Blocks of 4 KiB read from the source so far.
  std::size_t reads() const {
    std::uint64_t bytes = 0;
    for (const Piece& piece : rig_->fake->accepted()) {
      if (piece.list == nullptr)
        bytes += piece.from.length.value;
      else
        for (const MovePair& part : piece.list->parts) bytes += part.from.length.value;
    }
    return bytes / kUse;
  }
  std::size_t reads_of(const std::vector<std::size_t>& uses, std::uint64_t blocks) {
    const auto plan = plan_of(uses);
    make(blocks);
    const Prefetch prefetch =
        rig_->cache->prefetch(plan, {.window = Bytes{8 * kUse}, .named = true});
    for (const Extent& extent : plan) use(extent, &prefetch);
    EXPECT_EQ(prefetch.progress().used, uses.size());
    return reads();
  }

  Source source_{2048 * kUse};
  ManualClock clock_;
  ManualWaiting waiting_{clock_};
  std::optional<CacheRig> rig_;
};

// With LRU or FIFO no block of a loop that is larger than the cache is ever hit.
TEST_F(CandidatesTest, LoopLargerThanTheCache_ReadsLittleMoreThanTheOptimum) {
  for (const std::size_t length : {72U, 96U, 192U}) {
    std::vector<std::size_t> uses;
    for (std::size_t i = 0; i < 6 * length; ++i) uses.push_back(i % length);
    const std::size_t fewest = fewest_reads(uses, 64);
    EXPECT_LE(reads_of(uses, 64), fewest + fewest / 5) << length;
  }
}

TEST_F(CandidatesTest, RandomPlan_ReadsLittleMoreThanTheOptimum) {
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    Random random(seed);
    std::vector<std::size_t> uses;
    for (int i = 0; i < 1500; ++i) {
      const std::size_t below = 1 + random.below(256);  // small numbers are more frequent
      uses.push_back(random.below(below));
    }
    const std::size_t fewest = fewest_reads(uses, 64);
    EXPECT_LE(reads_of(uses, 64), fewest + fewest / 5) << seed;
  }
}

// The second scan starts an eighth of the object, which is half of the cache, behind the first.
TEST_F(CandidatesTest, SecondScanBehindTheFirst_FindsItsBlocks) {
  make(256);
  std::vector<std::size_t> all(1024);
  std::iota(all.begin(), all.end(), 0U);
  const auto plan = plan_of(all);
  const PrefetchOptions options{.window = Bytes{32 * kUse}, .named = true};
  const Prefetch first = rig_->cache->prefetch(plan, options);
  const std::size_t behind = plan.size() / 8;
  for (std::size_t i = 0; i < behind; ++i) use(plan[i], &first);
  const Prefetch second = rig_->cache->prefetch(plan, options);
  for (std::size_t i = behind; i < plan.size(); ++i) {
    use(plan[i], &first);
    use(plan[i - behind], &second);
  }
  for (std::size_t i = plan.size() - behind; i < plan.size(); ++i) use(plan[i], &second);
  EXPECT_EQ(second.progress().used, plan.size());
  EXPECT_LE(reads(), plan.size() * 13 / 10);
}

// Beside them each step reads a block without a plan.
TEST_F(CandidatesTest, SecondScanBesideOthers_FindsItsBlocks) {
  make(256);
  std::vector<std::size_t> all(1024);
  std::iota(all.begin(), all.end(), 0U);
  const auto plan = plan_of(all);
  const PrefetchOptions options{.window = Bytes{16 * kUse}, .named = true};
  const Prefetch first = rig_->cache->prefetch(plan, options);
  const std::size_t behind = plan.size() / 16;
  for (std::size_t i = 0; i < behind; ++i) use(plan[i], &first);
  const Prefetch second = rig_->cache->prefetch(plan, options);
  for (std::size_t i = behind; i < plan.size(); ++i) {
    use(plan[i], &first);
    use(plan[i - behind], &second);
    use(source_.at((1024 + i) * kUse, kUse), nullptr);
  }
  EXPECT_LE(reads(), (plan.size() - behind) + plan.size() * 13 / 10);
}

// Blocks that are used without a plan, and all but fill half of the cache, beside a loop. The plan
// names half of them, at its begin and its end.
TEST_F(CandidatesTest, LoopBesideAWorkingSet_LeavesItHalfOfTheCache) {
  make(64);
  std::vector<std::size_t> loop(12);
  std::iota(loop.begin(), loop.end(), 0U);
  for (std::size_t i = 0; i < 600; ++i) loop.push_back(100 + i % 200);
  for (std::size_t i = 0; i < 12; ++i) loop.push_back(i);
  const auto plan = plan_of(loop);
  const auto working_set = [&](std::size_t i) { return source_.at(i % 24 * kUse, kUse); };
  for (std::size_t i = 0; i < 36; ++i) use(working_set(12 + i % 12), nullptr);
  const Prefetch prefetch = rig_->cache->prefetch(plan, {.window = Bytes{8 * kUse}, .named = true});
  for (std::size_t i = 0; i < 12; ++i) use(plan[i], &prefetch);
  const std::size_t before = rig_->cache->stats().misses;
  for (std::size_t i = 0; i < 600; ++i) {
    use(plan[12 + i], &prefetch);
    use(working_set(i), nullptr);
  }
  EXPECT_EQ(rig_->cache->stats().misses, before);
  // A fifth of the loop fits into the rest of the cache.
  EXPECT_LE(reads(), 24 + 200 + 2 * 200 * 9 / 10);
}

// After the end of the plan its blocks go first.
TEST_F(CandidatesTest, EndOfAPlan_FreesItsBlocksForOthers) {
  make(64);
  std::vector<std::size_t> loop;
  for (std::size_t i = 0; i < 400; ++i) loop.push_back(100 + i % 50);
  const auto plan = plan_of(loop);
  const auto other = plan_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4});
  Prefetch kept = rig_->cache->prefetch(other, {.window = Bytes{4 * kUse}, .named = true});
  {
    Prefetch prefetch = rig_->cache->prefetch(plan, {.window = Bytes{8 * kUse}, .named = true});
    for (std::size_t i = 0; i < 200; ++i) use(plan[i], &prefetch);
  }
  for (std::size_t i = 0; i < 3 * 40; ++i) use(source_.at((200 + i % 40) * kUse, kUse), nullptr);
  EXPECT_EQ(rig_->cache->stats().misses, 40u) << "all of them stayed";
}

// The first blocks were far from their next use when they were used. Blocks read just before it
// come back later.
TEST_F(CandidatesTest, BlocksWhoseNextUseHasComeNearer_Stay) {
  std::vector<std::size_t> uses;
  const auto add = [&](std::size_t begin, std::size_t end) {
    while (begin < end) uses.push_back(begin++);
  };
  add(0, 40);
  add(100, 400);
  add(1000, 1100);
  const std::size_t again = uses.size();
  add(0, 40);
  add(1000, 1100);
  const auto plan = plan_of(uses);
  make(64);
  const Prefetch prefetch = rig_->cache->prefetch(plan, {.window = Bytes{8 * kUse}, .named = true});
  for (std::size_t i = 0; i < again + 32; ++i) use(plan[i], &prefetch);
  EXPECT_LE(reads(), again + 8) << "40 if all of them were evicted";
}

TEST_F(CandidatesTest, BlocksOfAPausedConsumer_GoBeforeThoseOfOthers) {
  make(64);
  std::vector<std::size_t> all(64);
  std::iota(all.begin(), all.end(), 0U);
  const PrefetchOptions options{.window = Bytes{24 * kUse}, .named = true};
  const auto paused = plan_of(all);
  const Prefetch first = rig_->cache->prefetch(paused, options);
  for (std::size_t i = 0; i < 8; ++i) use(paused[i], &first);
  clock_.advance(std::chrono::seconds{10});
  const std::size_t before = reads();
  std::vector<std::size_t> loop;
  for (std::size_t i = 0; i < 4 * 44; ++i) loop.push_back(100 + i % 44);
  const auto plan = plan_of(loop);
  const Prefetch second = rig_->cache->prefetch(plan, options);
  for (const Extent& extent : plan) use(extent, &second);
  EXPECT_LE(reads() - before, 44u + 8u) << "44 and 24 do not fit";
}

// A plan made later names blocks that are cached and used up.
TEST_F(CandidatesTest, NewPlan_KeepsTheBlocksThatItNames) {
  make(64);
  std::vector<std::size_t> all(48);
  std::iota(all.begin(), all.end(), 0U);
  const auto plan = plan_of(all);
  const PrefetchOptions options{.window = Bytes{4 * kUse}, .named = true};
  {
    const Prefetch first = rig_->cache->prefetch(plan, options);
    for (const Extent& extent : plan) use(extent, &first);
  }
  const Prefetch second = rig_->cache->prefetch(plan, options);
  std::vector<std::size_t> others(100);
  std::iota(others.begin(), others.end(), 100U);
  for (const Extent& extent : plan_of(others)) use(extent, nullptr);
  const std::size_t before = reads();
  for (const Extent& extent : plan) use(extent, &second);
  EXPECT_LE(reads() - before, 48u - 28u) << "half of the cache is theirs";
}

// More are released than can be offered as victims at once.
TEST_F(CandidatesTest, ReleasedBlocksForOneUse_GoBeforeOthers) {
  CacheRig& rig = make(320);
  const std::vector<std::size_t> kept{0, 1, 2, 3, 4, 5, 6, 7};
  for (const Extent& extent : plan_of(kept)) use(extent, nullptr);
  std::vector<Block> held;
  for (std::uint64_t i = 8; i < 308; ++i) {
    held.push_back(rig.cache->access(source_.at(i * kUse, kUse), {.keep = Keep::shorter}));
  }
  rig.settle();
  std::vector<std::size_t> others(13);
  std::iota(others.begin(), others.end(), 308U);
  for (const Extent& extent : plan_of(others)) use(extent, nullptr);  // the last one evicts one
  held.clear();
  others.resize(290);
  std::iota(others.begin(), others.end(), 400U);
  for (const Extent& extent : plan_of(others)) use(extent, nullptr);
  const std::size_t before = reads();
  for (const Extent& extent : plan_of(kept)) use(extent, nullptr);
  EXPECT_LE(reads() - before, 1u);
}

// Blocks without frames in a shard of their own.
class CandidatesOrderTest : public ::testing::Test {
 protected:
  using Use = Candidates::Use;

  CacheEntry& add(Use use) {
    CacheEntry& entry = entries_.emplace_back();
    entry.length = kUse;
    entry.offset = entries_.size() * kUse;
    entry.by_prefetch = use == Use::used_up;
    entry.word = static_cast<std::uint32_t>(BlockState::ready);
    candidates().enter(entry, use);
    return entry;
  }
  // The test is the only thread.
  Candidates& candidates() NO_THREAD_SAFETY_ANALYSIS { return shard_.candidates; }
  CacheEntry* choose(const std::function<bool(const CacheEntry&)>& accept,
                     unsigned effort) NO_THREAD_SAFETY_ANALYSIS {
    const auto count = [&](EvictionLinks& links) {
      ++offered_;
      return accept(static_cast<CacheEntry&>(links));
    };
    return candidates().choose(shard_.space.node(0), count, effort);
  }

  CacheRig rig_;
  std::deque<CacheEntry> entries_;
  Accounts accounts_{{}};
  ShardState shard_{
      *rig_.mover, {.budgets = {{kDram, 1_MiB}}, .eviction = s3_fifo}, accounts_, 0, 1};
  unsigned offered_ = 0;
};

TEST_F(CandidatesOrderTest, PinnedBlocks_AreNotOfferedUntilTheirRelease) {
  CacheEntry& pinned = add(Use::used_up);
  pinned.by_prefetch = 0;  // by Keep::shorter
  for (int i = 0; i < 3000; ++i) add(Use::used_up);
  for (CacheEntry& entry : entries_) entry.pins = 1;
  CacheEntry& last = add(Use::used_up);
  const auto any = [](const CacheEntry& entry) { return entry.droppable(false); };
  EXPECT_EQ(choose(any, 8), &last);
  EXPECT_EQ(offered_, 1u);
  candidates().leave(last, true);
  EXPECT_EQ(choose(any, 8), nullptr);
  EXPECT_EQ(offered_, 1u);
  pinned.pins = 0;
  add(Use::fresh);
  candidates().unpinned(pinned);
  EXPECT_EQ(choose(any, 8), &pinned);
  EXPECT_EQ(offered_, 2u);
}

TEST_F(CandidatesOrderTest, RefusedBlocksOfPlans_LeaveTheEffortForOthers) {
  for (int i = 0; i < 100; ++i) add(Use::used_up);
  const CacheEntry& other = add(Use::fresh);
  const auto not_of_plans = [](const CacheEntry& entry) { return entry.by_prefetch == 0; };
  EXPECT_EQ(choose(not_of_plans, 50), &other);
}

TEST_F(CandidatesOrderTest, BlockThatWasUsedAgain_StaysSoWhenItIsSorted) {
  CacheEntry& hot = add(Use::fresh);
  hot.visited = true;
  EXPECT_EQ(choose([](const CacheEntry&) { return false; }, 1), nullptr);
  EXPECT_FALSE(hot.visited) << "it moved to the main queue";
  candidates().sort(hot);
  const CacheEntry& cold = add(Use::fresh);
  EXPECT_EQ(choose([](const CacheEntry&) { return true; }, 8), &cold);
}

}  // namespace
}  // namespace headrace
