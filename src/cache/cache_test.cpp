// The promises of cache.h, one by one, on the fake backend.
#include "headrace/cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr auto kShort = std::chrono::milliseconds{1};

TEST(CacheTest, CreateRefusesBudgetsThatMakeNoSense) {
  CacheRig rig;
  const auto create = [&](CacheOptions options) {
    return Cache::create(*rig.mover, std::move(options));
  };
  for (const auto& budgets : std::vector<std::vector<std::pair<NodeId, Bytes>>>{
           {}, {{kDisk, 1_MiB}}, {{NodeId{77}, 1_MiB}}, {{kDram, 1_MiB}, {kDram, 1_MiB}}}) {
    const auto made = create({.budgets = budgets});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, ErrorCode::invalid) << made.error().message;
  }
  EXPECT_FALSE(create({.budgets = {{kDram, 1_MiB}}, .slab = 100_B}).has_value());
}

TEST(CacheTest, AMissIsServedByTheSourceUntilTheCopyIsReady) {
  CacheRig rig;
  Source source(100000);
  const Extent extent = source.at(100, 5000);
  const Block block = rig.cache->access(extent);
  EXPECT_EQ(block.state(), BlockState::filling);
  EXPECT_EQ(block.extent(), extent);
  EXPECT_EQ(block.node(), kHbm);
  ASSERT_TRUE(block.now());
  EXPECT_EQ(block.now()->data(), extent.memory());
  const auto copy = block.wait();
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_FALSE(source.holds(copy->data()));
  EXPECT_TRUE(source.equals(extent, *copy));
  EXPECT_EQ(block.now()->data(), copy->data());
  EXPECT_EQ(block.state(), BlockState::ready);
  EXPECT_EQ(block.node(), kDram);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.blocks, 1u);
  EXPECT_EQ(stats.bytes_used, 5000_B);
  EXPECT_EQ(stats.bytes_pinned, 5000_B);
  EXPECT_EQ(stats.wait_time.count, 1u);
  EXPECT_EQ(stats.copy_latency.count, 1u);
}

TEST(CacheTest, HitsInFlightAndReadyShareOneCopy) {
  CacheRig rig;
  Source source(10000);
  const Extent extent = source.at(0, 10000);
  const Block first = rig.cache->access(extent);
  const Block second = rig.cache->access(extent);
  rig.settle();
  const Block third = rig.cache->access(extent);
  EXPECT_EQ(third.state(), BlockState::ready);
  EXPECT_EQ(first.now()->data(), second.now()->data());
  EXPECT_EQ(first.now()->data(), third.now()->data());
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.inflight_hits, 1u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.bytes_pinned, 10000_B);  // once
  EXPECT_EQ(rig.fake->stats().bytes, 10000_B);
}

TEST(CacheTest, APartOfACachedExtentIsServedFromIt) {
  CacheRig rig;
  Source source(100000);
  rig.load(source.at(1000, 50000));
  const Block part = rig.cache->access(source.at(20000, 123));
  EXPECT_EQ(part.state(), BlockState::ready);
  EXPECT_TRUE(source.equals(part.extent(), *part.now()));
  EXPECT_EQ(rig.cache->stats().hits, 1u);
  // One that only overlaps gets a copy of its own.
  const Block other = rig.cache->access(source.at(50000, 10000));
  EXPECT_EQ(other.state(), BlockState::filling);
  EXPECT_EQ(rig.cache->stats().blocks, 2u);
  EXPECT_TRUE(source.equals(other.extent(), *other.wait()));
}

TEST(CacheTest, EmptyInvalidAndDefaultBlocks) {
  CacheRig rig;
  Source source(100);
  const Block empty = rig.cache->access(source.at(100, 0));
  EXPECT_EQ(empty.state(), BlockState::ready);
  EXPECT_TRUE(empty.wait().has_value());
  EXPECT_FALSE(empty.node());
  for (const Extent& extent : {source.at(50, 51), source.at(~std::uint64_t{0}, 2), Extent{}}) {
    const Block invalid = rig.cache->access(extent);
    EXPECT_EQ(invalid.state(), BlockState::absent);
    EXPECT_FALSE(invalid.now());
    EXPECT_EQ(invalid.wait().error().code, ErrorCode::invalid);
    rig.cache->invalidate(extent);  // bad input is harmless
  }
  EXPECT_EQ(Block{}.wait().error().code, ErrorCode::invalid);
  EXPECT_EQ(Block{}.state(), BlockState::absent);
  EXPECT_FALSE(Block{}.clone().now());
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits + stats.misses, 0u);
}

TEST(CacheTest, ClonesPinAndMovesDoNot) {
  CacheRig rig({.budget = 4096_B});
  Source source(8192);
  Block first = rig.cache->access(source.at(0, 4096));
  rig.settle();
  Block second = first.clone();
  Block moved = std::move(first);
  EXPECT_EQ(first.state(), BlockState::absent);
  moved = Block{};
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 4096_B);
  const Block refused = rig.cache->access(source.at(4096, 4096));
  EXPECT_EQ(refused.state(), BlockState::absent);
  EXPECT_TRUE(source.equals(second.extent(), *second.now()));
  second = Block{};
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 0_B);
  const Block taken = rig.cache->access(source.at(4096, 4096));
  EXPECT_EQ(taken.state(), BlockState::filling);
  EXPECT_EQ(rig.cache->stats().evictions, 1u);
}

TEST(CacheTest, WithoutRoomTheBlockStandsForTheSourceOrSaysWhy) {
  CacheRig rig({.budget = 8192_B});
  Source source(100000);
  const Block large = rig.cache->access(source.at(0, 8193));
  EXPECT_EQ(large.state(), BlockState::absent);
  EXPECT_EQ(large.node(), kHbm);
  EXPECT_EQ((*large.wait()).data(), source.bytes().data());
  Opaque opaque(1_MiB);
  const Block none = rig.cache->access(whole(opaque));
  EXPECT_FALSE(none.now());
  EXPECT_FALSE(none.node());
  EXPECT_EQ(none.wait().error().code, ErrorCode::exhausted);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.refusals, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.bytes_used, 0_B);
}

TEST(CacheTest, APolicyWithoutAnAnswerOrABudgetIsARefusal) {
  CacheRig rig;
  Source fastest(4096, kHbm);
  for (const PlacementPolicy& policy :
       {PlacementPolicy(place::nearest_fast), place::always(kHbm)}) {
    auto cache = Cache::create(*rig.mover, {.budgets = {{kDram, 1_MiB}}, .placement = policy});
    ASSERT_TRUE(cache.has_value());
    const Block block = (*cache)->access(whole(fastest.object()));
    EXPECT_EQ(block.state(), BlockState::absent);
    EXPECT_TRUE(block.wait().has_value());
    EXPECT_EQ((*cache)->stats().refusals, 1u);
  }
}

TEST(CacheTest, AFailedCopyGivesTheSourceIsCountedAndTriedAgain) {
  CacheRig rig;
  Source source(4096);
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  const Block block = rig.cache->access(source.at(0, 4096));
  const auto bytes = block.wait();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_TRUE(source.holds(bytes->data()));
  EXPECT_EQ(block.state(), BlockState::failed);
  EXPECT_EQ(block.node(), kHbm);
  EXPECT_EQ(rig.cache->stats().failures, 1u);
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  rig.fake->break_engine(kCpuA, std::nullopt);
  rig.fake->break_engine(kCpuB, std::nullopt);
  const Block again = rig.cache->access(source.at(0, 4096));
  EXPECT_FALSE(source.holds((*again.wait()).data()));
  EXPECT_EQ(rig.cache->stats().misses, 2u);
}

TEST(CacheTest, AFailedCopyOfWhatNoCpuCanAddressIsAnError) {
  CacheRig rig;
  Opaque opaque(4096_B);
  const Block block = rig.cache->access(whole(opaque));
  rig.settle();
  EXPECT_EQ(block.state(), BlockState::failed);
  EXPECT_FALSE(block.now());
  EXPECT_FALSE(block.wait().has_value());
  EXPECT_EQ(rig.cache->stats().failures, 1u);
}

TEST(CacheTest, WaitEndsAtItsBoundAndCanBeRepeated) {
  CacheRig rig;
  Source source(4096);
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  EXPECT_EQ(block.wait(kShort).error().code, ErrorCode::timed_out);
  EXPECT_EQ(block.wait(Nanoseconds{0}).error().code, ErrorCode::timed_out);
  rig.fake->hold(false);
  EXPECT_TRUE(block.wait().has_value());
}

TEST(CacheTest, WaitEndsAtItsBoundUnderAClockThatStands) {
  ManualClock clock;
  CacheRig rig({.clock = &clock});
  Source source(4096);
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  EXPECT_EQ(block.wait(kShort).error().code, ErrorCode::timed_out);
}

TEST(CacheTest, ABatchIsServedLikeSingleAccesses) {
  CacheRig rig;
  Source source(100000);
  rig.load(source.at(0, 4096));
  const std::vector<Extent> extents{source.at(0, 4096), source.at(8192, 4096),
                                    source.at(8192, 4096), source.at(99999, 2)};
  std::vector<Block> blocks(extents.size());
  blocks[0] = rig.cache->access(source.at(50000, 10));
  rig.cache->access(extents, blocks);
  rig.settle();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(source.equals(extents[i], *blocks[i].wait())) << i;
  }
  EXPECT_EQ(blocks[3].wait().error().code, ErrorCode::invalid);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 3u);
  EXPECT_EQ(stats.inflight_hits, 1u);
}

TEST(CacheTest, InvalidateDropsAllOverlappingReadyCopies) {
  CacheRig rig;
  Source source(100000);
  rig.load(source.at(0, 4096));
  rig.load(source.at(2000, 50000));
  rig.load(source.at(60000, 100));
  const Block held = rig.cache->access(source.at(0, 4096));
  const std::byte old = (*held.now())[3000];
  source.bytes()[3000] = ~old;
  rig.cache->invalidate(source.at(3000, 1));
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.invalidations, 2u);
  EXPECT_EQ(stats.blocks, 1u);
  EXPECT_EQ((*held.now())[3000], old);  // held blocks keep what they have
  const Block fresh = rig.cache->access(source.at(0, 4096));
  rig.settle();
  EXPECT_EQ((*fresh.wait())[3000], ~old);
  EXPECT_EQ(rig.cache->stats().bytes_used, Bytes{4096 * 2 + 100});
}

TEST(CacheTest, NoAccessAfterInvalidateSeesACopyThatWasInFlight) {
  CacheRig rig;
  Source source(4096);
  rig.fake->hold(true);
  const Block before = rig.cache->access(source.at(0, 4096));
  ASSERT_EQ(rig.fake->in_flight(), 1u);
  source.bytes()[0] = std::byte{0xaa};
  rig.cache->invalidate(source.at(0, 4096));
  const Block after = rig.cache->access(source.at(0, 4096));
  EXPECT_EQ(after.state(), BlockState::filling);
  rig.fake->finish(1);  // the first copy ends: that is not what the second access waits for
  EXPECT_EQ(before.state(), BlockState::ready);
  EXPECT_EQ(after.state(), BlockState::filling);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ((*after.wait())[0], std::byte{0xaa});
  EXPECT_NE((*before.wait()).data(), (*after.wait()).data());
  EXPECT_EQ(rig.cache->stats().misses, 2u);
}

TEST(CacheTest, TheFrameOfAnInvalidatedCopyIsNotReusedBeforeTheEngineIsDone) {
  CacheRig rig({.budget = 4096_B});
  Source source(8192);
  rig.fake->hold(true);
  {
    const Block dropped = rig.cache->access(source.at(0, 4096));
  }
  rig.cache->invalidate(source.at(0, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 4096_B);  // the engine still writes to it
  EXPECT_EQ(rig.cache->access(source.at(4096, 4096)).state(), BlockState::absent);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  EXPECT_EQ(rig.cache->stats().failures, 0u);
  EXPECT_EQ(rig.cache->access(source.at(4096, 4096)).state(), BlockState::filling);
  rig.settle();
}

TEST(CacheTest, FlushDropsWhatNobodyHoldsAndClearDropsAll) {
  CacheRig rig;
  Source source(100000);
  rig.load(source.at(0, 4096));
  const Block held = rig.cache->access(source.at(8192, 4096));
  rig.settle();
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
  EXPECT_EQ(rig.cache->access(source.at(8192, 4096)).state(), BlockState::ready);
  rig.cache->clear();
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_TRUE(source.equals(held.extent(), *held.now()));
  EXPECT_EQ(rig.cache->stats().bytes_used, 4096_B);
}

TEST(CacheTest, ResizeShrinksAtOnceAsFarAsPinsAllow) {
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 16384_B});
  Source source(100000);
  Block held = rig.cache->access(source.at(0, 4096));
  for (const std::uint64_t at : {1, 2, 3}) rig.load(source.at(at * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 4u);
  ASSERT_TRUE(rig.cache->resize(kDram, 8192_B).has_value());
  EXPECT_EQ(rig.cache->stats().bytes_used, 8192_B);
  ASSERT_TRUE(rig.cache->resize(kDram, 0_B).has_value());
  EXPECT_EQ(rig.cache->stats().bytes_used, 4096_B);
  EXPECT_TRUE(source.equals(held.extent(), *held.now()));
  held = Block{};
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  EXPECT_EQ(rig.cache->access(source.at(0, 4096)).state(), BlockState::absent);
  ASSERT_TRUE(rig.cache->resize(kDram, 8192_B).has_value());
  rig.load(source.at(0, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
  EXPECT_EQ(rig.cache->resize(kHbm, 1_MiB).error().code, ErrorCode::absent);
}

// Found by the model: a block that a plan wants must not be dropped for the budget and fetched
// again for ever, when a pin keeps the slab anyway.
TEST(CacheTest, ANodeOverItsBudgetByAPinComesToRest) {
  CacheRig rig({.budget = 65536_B});
  Source source(100000);
  const Block held = rig.cache->access(source.at(0, 4096));
  rig.settle();
  const Prefetch plan = rig.cache->prefetch(std::vector{source.at(8192, 4096)});
  ASSERT_TRUE(rig.cache->resize(kDram, 16384_B).has_value());
  rig.settle();
  EXPECT_EQ(rig.cache->access(source.at(8192, 4096)).state(), BlockState::ready);
  EXPECT_LE(rig.cache->stats().prefetched, 2u);
  EXPECT_LE(rig.cache->stats().bytes_used, 16384_B);
}

TEST(CacheTest, ABlockLargerThanASlabTakesThePlaceOfSmallOnes) {
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 32768_B});
  Source source(200000);
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(i * 4096, 4096));
  rig.load(source.at(100000, 20000));
  EXPECT_EQ(rig.cache->access(source.at(100000, 20000)).state(), BlockState::ready);
  EXPECT_LE(rig.cache->stats().bytes_used, 32768_B);
  // And small ones take the place of the large one again.
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(i * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

TEST(CacheTest, ALargeBlockTakesARowOfSmallOnesAndNotMore) {
  CacheRig rig({.cache = {.slab = 65536_B}, .budget = 65536_B});
  Source source(400000);
  for (std::uint64_t i = 0; i < 16; ++i) rig.load(source.at(i * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().evictions, 0u);
  rig.load(source.at(16 * 4096, 16384));
  EXPECT_EQ(rig.cache->stats().evictions, 4u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 65536_B);
}

TEST(CacheTest, ReserveAllocatesTheBudgetAtOnce) {
  CacheRig rig({.cache = {.slab = 8192_B, .reserve = true}, .budget = 20000_B});
  Source source(20000);
  rig.load(source.at(0, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
}

TEST(CacheTest, TheObserverSeesTheExactSequence) {
  CacheRig rig({.budget = 4096_B});
  Source source(8192);
  const Extent a = source.at(0, 4096);
  const Extent b = source.at(4096, 4096);
  {
    const Block first = rig.cache->access(a);
    const Block second = rig.cache->access(a);
    rig.settle();
  }
  (void)rig.cache->access(a);
  rig.load(b);
  rig.cache->invalidate(b);
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  rig.load(a);
  EXPECT_EQ(rig.event_names(),
            "miss fill_started inflight_hit ready hit evicted miss fill_started ready invalidated "
            "miss fill_started failed");
  EXPECT_EQ(rig.events[5].extent, a);
  EXPECT_EQ(rig.events[9].extent, b);
  EXPECT_FALSE(rig.events[1].by_prefetch);
  for (std::size_t i = 1; i < rig.events.size(); ++i) {
    EXPECT_LE(rig.events[i - 1].time, rig.events[i].time);
  }
}

TEST(CacheTest, TheDestructorWaitsForCopiesInFlight) {
  CacheRig rig;
  Source source(40960);
  for (std::uint64_t i = 0; i < 10; ++i) (void)rig.cache->access(source.at(i * 4096, 4096));
  rig.cache.reset();
  EXPECT_EQ(rig.fake->in_flight(), 0u);
}

using CacheDeathTest = testing::Test;

TEST(CacheDeathTest, ABlockMustNotOutliveItsCache) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        CacheRig rig;
        Source source(4096);
        const Block block = rig.cache->access(source.at(0, 4096));
        rig.settle();
        rig.cache.reset();
      },
      "CHECK failed");
}

// The thesis, 5.1.2: T2 and T3 get the block between its entry into the cache and the submission by
// T1; only T1 has what to wait on. Here they wait on the state of the block, and T1 never waits.
TEST(ThesisTest, BlockingScenarioT2AndT3DoNotDependOnT1Waiting) {
  std::atomic<int> stage{0};
  CacheRig::Options options;
  options.poller = true;
  options.cache.route = [&](const Machine& machine, const RouteRequest& request) {
    stage = 1;  // T1 is inside the submission
    for (int i = 0; stage.load() < 3 && i < 5'000'000; ++i) std::this_thread::yield();
    return place::one(machine, request);
  };
  CacheRig rig(std::move(options));
  rig.record = false;
  Source source(4096);
  const Extent extent = source.at(0, 4096);
  const auto other = [&] {
    while (stage.load() == 0) std::this_thread::yield();
    const Block block = rig.cache->access(extent);
    EXPECT_EQ(block.state(), BlockState::filling);
    EXPECT_EQ(block.wait(Nanoseconds{0}).error().code, ErrorCode::timed_out);
    ++stage;
    const auto bytes = block.wait();
    EXPECT_TRUE(bytes && source.equals(extent, *bytes));
  };
  std::jthread t2(other);
  std::jthread t3(other);
  const Block t1 = rig.cache->access(extent);
  t2.join();
  t3.join();
  EXPECT_EQ(rig.cache->stats().misses, 1u);
  EXPECT_EQ(rig.cache->stats().inflight_hits, 2u);
}

// The first deadlock: a wake-up without a change of the value that is waited on puts the waiter
// back to sleep. Here the word changes before anybody is woken, for a failed copy as well.
TEST(ThesisTest, FirstDeadlockWaitersWakeAfterSuccessAndAfterFailure) {
  for (const bool broken : {false, true}) {
    CacheRig rig({.poller = true});
    rig.record = false;
    Source source(4096);
    if (broken) {
      rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
      rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
    }
    rig.fake->hold(true);
    const Block block = rig.cache->access(source.at(0, 4096));
    std::atomic<int> waiting{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const Block own = rig.cache->access(source.at(0, 4096));
        ++waiting;
        const auto bytes = own.wait();
        EXPECT_TRUE(bytes && source.equals(own.extent(), *bytes));
      });
    }
    while (waiting.load() < 4) std::this_thread::yield();
    rig.fake->hold(false);
    threads.clear();
    EXPECT_EQ(block.state(), broken ? BlockState::failed : BlockState::ready);
  }
}

// The second deadlock: an instance made for an extent that turned out to be there already, and
// dropped without ever being submitted, waited in its destructor for a copy nobody started.
TEST(ThesisTest, SecondDeadlockABlockThatWasNeverSubmittedCanBeDropped) {
  CacheRig rig({.poller = true});
  rig.record = false;
  Source source(4096);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        (void)rig.cache->access(source.at(0, 4096));
        if (k % 10 == 0) rig.cache->invalidate(source.at(0, 4096));
      }
    });
  }
  threads.clear();
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits + stats.inflight_hits + stats.misses, 1600u);
  EXPECT_EQ(stats.bytes_pinned, 0_B);
}

}  // namespace
}  // namespace headrace
