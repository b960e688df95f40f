// SPDX-License-Identifier: Apache-2.0
// flush(): which blocks are written to the folder, and what it reports; full disks.
#include "kvcache/flusher.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvFlush, WritesWhatIsOnItsWayToASlowerMemory) {
  KvRig rig;
  rig.open({1, 1}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(std::span(keys).first(1))->stored, 1u);
  rig.fake->hold(true);
  std::vector<std::byte> bytes = rig.blocks_of(std::span(keys).last(1));
  const MemoryRange memory(bytes, kDram);
  const auto stored = rig.store->store(std::span(keys).last(1), whole(memory));
  rig.store->poll();
  EXPECT_EQ(rig.store->stats().tiers[2].blocks, 0u);
  const Status early = rig.store->flush(Nanoseconds{1000});
  rig.fake->hold(false);
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, ErrorCode::timed_out);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open({1, 1}, 8);
  EXPECT_TRUE(rig.get(std::span(keys).first(1)).has_value());
}

// An early failure is reported, even if later blocks must be waited for.
TEST(KvFlush, ForgetsNoFailure) {
  KvRig rig;
  auto options = rig.options({2}, 4);
  options.in_flight = rig.geometry.block();  // one at a time
  rig.open(std::move(options));
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  for (const kvcache::Key& key : keys) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  rig.files->held = true;
  int asked = 0;
  const Status outcome = rig.store->flush(std::chrono::hours{1}, [&] {
    const bool first = asked++ == 0;
    rig.files->unwritable = first;
    rig.files->release();
    rig.files->held = first;
    return false;
  });
  EXPECT_EQ(asked, 2);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::io);
  EXPECT_NE(outcome.error().message.find("1 blocks"), std::string::npos) << outcome.error().message;
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 1u);
  EXPECT_TRUE(rig.store->flush().has_value());
}

TEST(KvFlush, StopsWhenItIsAskedTo) {
  KvRig rig;
  rig.open({2}, 4);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  rig.files->held = true;
  const Status outcome = rig.store->flush(std::chrono::hours{1}, [] { return true; });
  rig.files->release();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(rig.store->flush().has_value());
}

// The files are open, so writing to them does not fail.
TEST(KvFlush, IntoAFolderThatIsGoneFails) {
  KvRig rig;
  rig.open({2}, 4);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  std::filesystem::remove_all(rig.folder.path);
  for (int round = 0; round < 2; ++round) {  // with blocks to write, and without
    const Status outcome = rig.store->flush();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::io);
    EXPECT_NE(outcome.error().message.find("removed"), std::string::npos);
  }
  rig.open({2}, 4);
  EXPECT_EQ(rig.put(keys)->stored, 2u);
  EXPECT_TRUE(rig.store->flush().has_value());
}

// A write began before flush(), and fails while it waits.
TEST(KvFlush, DuringAnIdleWriteThatFails_WritesTheBlock) {
  KvRig rig;
  auto options = rig.options({4}, 8);
  options.tiers.back().write = kvcache::WriteBack::idle;
  rig.open(options);
  rig.files->held = true;
  const auto keys = kvcache::keys(rig.geometry, tokens(4));
  ASSERT_EQ(rig.put(keys)->stored, 1u);
  rig.poll();
  const Status outcome = rig.store->flush(std::chrono::hours{1}, [&] {
    rig.files->unwritable = true;
    rig.files->release();
    rig.files->unwritable = false;
    return false;
  });
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  rig.open(options);
  EXPECT_EQ(rig.store->stats().reopened, 1u);
}

TEST(KvFlush, KeepsWhatIsInMemory) {
  KvRig rig;
  rig.open({8}, 4);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 6));
  ASSERT_TRUE(rig.put(keys).has_value());
  ASSERT_TRUE(rig.store->flush().has_value());
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.tiers[0].blocks, 6u);
  EXPECT_EQ(stats.tiers[1].blocks, 4u);  // the tier is full
  EXPECT_TRUE(rig.get(keys).has_value());
}

// flush() waits for arriving blocks. A dropped block ends without a copy.
TEST(KvFlush, DuringParkedStore_EndsWhenTheStoreCloses) {
  GpuRig rig;
  rig.open({{kDram, 8}}, 16);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  const Device memory{rig.gpu.machine, rig.bytes_of(4)};
  HeldStream held;
  const auto stored = rig.store->store(keys, whole(memory.range), {.stream = held.number()});
  ASSERT_TRUE(stored.has_value()) << stored.error().message;
  Status flushed;
  std::thread flushing([&] { flushed = rig.store->flush(std::chrono::seconds{20}); });
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_TRUE(rig.store->close().has_value());
  flushing.join();
  ASSERT_FALSE(flushed.has_value());
  EXPECT_EQ(flushed.error().code, ErrorCode::cancelled) << flushed.error().message;
}

// Each write ends only after the next has begun.
TEST(KvFlush, WhileOthersStore_WaitsForEarlierBlocksOnly) {
  KvRig rig;
  rig.open({}, 64);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 21));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  const auto put = [&](std::size_t i) {
    const Extent from = whole(memory).part(rig.bytes_of(i).value, rig.geometry.block());
    ASSERT_TRUE(rig.store->store({&keys[i], 1}, from).has_value());
    rig.store->poll();
  };
  rig.files->held = true;
  put(0);
  std::size_t asked = 0;
  const Status outcome = rig.store->flush(std::chrono::hours{1}, [&] {
    rig.files->release();
    rig.files->held = true;
    put(++asked);
    return asked == 20;
  });
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_LT(asked, 5u);
  EXPECT_TRUE(rig.store->contains(keys)[0]);
  EXPECT_FALSE(rig.store->contains(keys)[asked]);
  rig.files->release();
}

// Other operations always write as much as may be written at a time.
TEST(KvFlush, WhileOthersWrite_HasAShare) {
  KvRig rig;
  auto options = rig.options({32}, 64);
  options.tiers.back().write = kvcache::WriteBack::stored;
  options.in_flight = rig.geometry.block();
  rig.open(std::move(options));
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 22));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  rig.files->unwritable = true;
  for (std::size_t i : {20, 21}) ASSERT_EQ(rig.put({&keys[i], 1})->failed, 1u);  // only in memory
  rig.files->unwritable = false;
  rig.files->held = true;
  const auto put = [&](std::size_t i) {
    const Extent from = whole(memory).part(rig.bytes_of(i).value, rig.geometry.block());
    ASSERT_TRUE(rig.store->store({&keys[i], 1}, from).has_value());
    rig.poll();
  };
  put(0);
  std::size_t asked = 0;
  const Status outcome = rig.store->flush(std::chrono::hours{1}, [&] {
    rig.files->release();
    rig.files->held = true;
    put(++asked);
    return asked == 19;
  });
  rig.files->release();
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_LT(asked, 10u);
  rig.settle();
  rig.open({32}, 64);
  EXPECT_EQ(rig.store->pin(std::span(keys).last(2)).size(), 2u);
}

// Stores the keys one after the other; returns which are there afterwards.
std::vector<bool> there_after_all(KvRig& rig, std::span<const kvcache::Key> keys) {
  for (const kvcache::Key& key : keys) {
    EXPECT_TRUE(rig.put({&key, 1}).has_value());
    rig.settle();
  }
  std::vector<bool> there;
  for (const kvcache::Key& key : keys) there.push_back(rig.store->match({&key, 1}).size() == 1);
  return there;
}

// Slots with disk space are reused, as under a smaller budget: the newest blocks are there.
TEST(KvFullDisk, IsASmallerBudget) {
  KvRig rig;
  const auto some = kvcache::keys(rig.geometry, tokens(4 * 20));
  rig.open({2}, 8);
  rig.files->room = 3 * 4096;
  KvRig small;
  small.open({2}, 3);
  const auto there = there_after_all(rig, some);
  EXPECT_EQ(there, there_after_all(small, some));
  EXPECT_EQ(std::ranges::count(there, true), 5);
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.tiers[0].dropped, 0u);
  EXPECT_EQ(stats.tiers[1].blocks, 3u);
  EXPECT_EQ(stats.tiers[1].dropped, 15u);
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_NE(stats.last_error.find("no space left"), std::string::npos);
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (there[i]) {
      EXPECT_TRUE(rig.get({&some[i], 1}, {.promote = false}).has_value()) << i;
    }
  }
}

TEST(KvFullDisk, IsTriedAgain) {
  ManualClock clock;
  KvRig rig({.clock = &clock});
  const auto some = kvcache::keys(rig.geometry, tokens(4 * 60));
  rig.open({2}, 8);
  EXPECT_FALSE(rig.store->stats().last_error_age.has_value());
  rig.files->room = 3 * 4096;
  (void)there_after_all(rig, std::span(some).first(20));
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 3u);
  clock.advance(std::chrono::seconds{10});  // the disk is still full: trying it costs no block
  EXPECT_EQ(std::ranges::count(there_after_all(rig, std::span(some).subspan(20, 6)), true), 5);
  rig.files->room = UINT64_MAX;
  (void)there_after_all(rig, std::span(some).subspan(26, 6));
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 3u);
  clock.advance(std::chrono::seconds{10});
  (void)there_after_all(rig, std::span(some).subspan(32, 12));
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 8u);
  EXPECT_EQ(rig.store->stats().tiers[0].dropped, 0u);
  // The age of the error shows that the disk is no longer full.
  EXPECT_NE(rig.store->stats().last_error, "");
  EXPECT_EQ(rig.store->stats().last_error_age, std::chrono::seconds{10});
}

// A file system that writes each block anew elsewhere has no space for written slots either.
TEST(KvFullDisk, ThatTakesNothingLosesNoMoreThanWhatHasNoRoom) {
  ManualClock clock;
  KvRig rig({.clock = &clock});
  const auto some = kvcache::keys(rig.geometry, tokens(4 * 30));
  rig.open({2}, 3);
  (void)there_after_all(rig, std::span(some).first(5));
  rig.files->full = true;
  const auto there = there_after_all(rig, std::span(some).subspan(5, 10));
  EXPECT_EQ(std::ranges::count(there, true), 2);
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);  // one was evicted for a write that failed
  rig.files->full = false;
  EXPECT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 3u);
}

// Also with one disk, and without a flush().
TEST(KvFlush, IdleWriteThatFails_IsTriedAgain) {
  ManualClock clock;
  KvRig rig({.clock = &clock});
  auto options = rig.options({4}, 8);
  options.tiers.back().write = kvcache::WriteBack::idle;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  rig.files->unwritable = true;
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  rig.settle();
  rig.files->unwritable = false;
  rig.settle();
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 0u);
  clock.advance(std::chrono::seconds{10});
  rig.settle();
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);
  EXPECT_EQ(rig.store->stats().failed, 0u);
}

TEST(KvFullDisk, FlushTriesItAndSaysSo) {
  KvRig rig;
  const auto some = kvcache::keys(rig.geometry, tokens(4 * 6));
  rig.open({6}, 8);
  rig.files->room = 2 * 4096;
  ASSERT_EQ(rig.put(some)->stored, 6u);
  const Status outcome = rig.store->flush();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::io);
  EXPECT_NE(outcome.error().message.find("4 blocks"), std::string::npos) << outcome.error().message;
  EXPECT_NE(outcome.error().message.find("no space left"), std::string::npos);
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);
  rig.files->room = UINT64_MAX;
  EXPECT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 6u);
}

// Blocks given to store() before a flush() are in the folder afterwards, even if no thread waited
// for the store.
TEST(KvFlush, WaitsForWhatIsBeingStored) {
  for (const std::size_t room : {12, 4}) {  // some wait for slots
    KvRig rig;
    const auto some = kvcache::keys(rig.geometry, tokens(4 * 12));
    rig.open({room}, 16);
    std::vector<std::byte> bytes = rig.blocks_of(some);
    const MemoryRange memory(bytes, kDram);
    const auto stored = rig.store->store(some, whole(memory));
    ASSERT_TRUE(stored.has_value());
    EXPECT_FALSE(stored->done());
    EXPECT_TRUE(rig.store->flush().has_value());
    EXPECT_TRUE(stored->done());
    const std::size_t there = stored->wait()->stored;
    EXPECT_EQ(there, 12u);
    rig.open({room}, 16);
    EXPECT_EQ(rig.store->stats().reopened, there);
  }
}

// The blocks after a prefix are not found without it.
TEST(KvFullDisk, FlushWritesWhatOthersFollowFirst) {
  KvRig rig;
  const auto some = kvcache::keys(rig.geometry, tokens(4 * 12));
  rig.open({12}, 16);
  rig.files->room = 5 * 4096;
  ASSERT_EQ(rig.put(some)->stored, 12u);
  EXPECT_FALSE(rig.store->flush().has_value());
  rig.open({12}, 16);
  EXPECT_EQ(rig.store->stats().reopened, 5u);
  EXPECT_EQ(rig.store->match(some).size(), 5u);
}

// A write puts the header on disk but not the block: a later process must not find the block.
TEST(KvFullDisk, ListsNoBlockThatWasNotWritten) {
  for (const bool failing : {false, true}) {
    KvRig rig;
    const auto some = kvcache::keys(rig.geometry, tokens(4 * 6));
    rig.open({6}, 8);
    rig.files->room = 2 * 4096;
    rig.files->without_room = failing ? ErrorCode::io : ErrorCode::exhausted;
    ASSERT_EQ(rig.put(some)->stored, 6u);
    const Status outcome = rig.store->flush();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_NE(outcome.error().message.find("4 blocks"), std::string::npos)
        << outcome.error().message;
    EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);
    rig.open({6}, 8);
    EXPECT_EQ(rig.store->stats().reopened, 2u);
    for (const kvcache::Key& key : some) {
      if (rig.store->contains({&key, 1})[0]) {
        EXPECT_TRUE(rig.get({&key, 1}).has_value());
      }
    }
    EXPECT_EQ(rig.store->stats().damaged, 0u);
  }
}

// Blocks that are only in memory and cannot be written stay there, however often others are used.
TEST(KvFullDisk, PromotionDropsNoBlockThatIsNowhereElse) {
  // The larger tier keeps some slots free, and promotions use these first.
  for (const auto& [slots, failing] :
       {std::pair{4u, false}, {4u, true}, {32u, false}, {32u, true}}) {
    KvRig rig;
    const auto some = kvcache::keys(rig.geometry, tokens(8 * slots));
    rig.open({slots}, 2 * slots);
    ASSERT_EQ(rig.put(std::span(some).first(slots))->stored, slots);
    rig.settle();
    ASSERT_TRUE(rig.store->flush().has_value());
    ASSERT_EQ(rig.put(std::span(some).last(slots))->stored, slots);
    rig.settle();
    (failing ? rig.files->unwritable : rig.files->full) = true;
    rig.files->writes = 0;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < slots; ++i) {
        if (rig.store->match({&some[i], 1}).size() == 1) {
          EXPECT_TRUE(rig.get({&some[i], 1}).has_value());
        }
        rig.settle();
      }
    }
    EXPECT_EQ(rig.store->match(std::span(some).last(slots)).size(), slots);
    EXPECT_EQ(rig.store->stats().tiers[0].dropped, 0u);
    EXPECT_LT(rig.files->writes, 10u);  // the disk is not tried each time
  }
}

}  // namespace
}  // namespace headrace
