// SPDX-License-Identifier: Apache-2.0
// Evictions: which blocks leave a tier, and where they go.
#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvRoom, BlocksMoveDownTierByTier) {
  KvRig rig;
  rig.open({2, 3}, 4);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 7));
  for (const kvcache::Key& key : keys) {
    EXPECT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
  }
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.tiers[0].blocks + stats.tiers[1].blocks + stats.tiers[2].blocks, 7u);
  EXPECT_EQ(stats.tiers[0].dropped + stats.tiers[1].dropped, 0u);
  EXPECT_GT(stats.tiers[1].arrived, 0u);
  EXPECT_GT(stats.tiers[2].arrived, 0u);
  EXPECT_TRUE(rig.get(keys).has_value());
}

TEST(KvRoom, UsedBlocksStay) {
  KvRig rig;
  rig.open({4});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 12));
  ASSERT_TRUE(rig.put(std::span(keys).first(4)).has_value());
  for (std::size_t i = 4; i < 12; ++i) {
    ASSERT_TRUE(rig.get(std::span(keys).first(1)).has_value()) << i;
    ASSERT_TRUE(rig.put(std::span(keys).subspan(i, 1)).has_value());
  }
  EXPECT_EQ(rig.store->match(std::span(keys).first(1)).size(), 1u);
  EXPECT_EQ(rig.store->match(std::span(keys).subspan(1)).size(), 0u);
  EXPECT_EQ(rig.store->stats().tiers[0].dropped, 8u);
}

TEST(KvRoom, LastTierDropsItsOwn) {
  KvRig rig;
  rig.open({2}, 3);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 20));
  for (const kvcache::Key& key : keys) {
    ASSERT_TRUE(rig.put({&key, 1}).has_value());
    rig.settle();
  }
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.tiers[0].blocks, 2u);
  EXPECT_EQ(stats.tiers[1].blocks, 3u);
  EXPECT_EQ(stats.tiers[1].dropped, 15u);
}

TEST(KvRoom, PromotedBlocksLeaveWithoutBeingWrittenAgain) {
  KvRig rig;
  rig.open({2}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
  ASSERT_TRUE(rig.store->flush().has_value());
  const auto written = rig.store->stats().tiers[1].arrived;
  EXPECT_EQ(written, 4u);
  for (int round = 0; round < 3; ++round) {
    for (const kvcache::Key& key : keys) EXPECT_TRUE(rig.get({&key, 1}).has_value());
  }
  EXPECT_GT(rig.store->stats().tiers[0].arrived, 0u);
  EXPECT_EQ(rig.store->stats().tiers[1].arrived, written);
  EXPECT_EQ(rig.store->match(std::span(keys).last(1)).tiers()[0], 0u);
}

TEST(KvRoom, FailedWayDownLosesTheBlockAndNothingElse) {
  KvRig rig;
  rig.open({2}, 8);
  rig.files->fail_chance = 1;
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  for (const kvcache::Key& key : keys) {
    EXPECT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
  }
  EXPECT_EQ(rig.store->stats().failed, 2u);
  EXPECT_EQ(rig.store->match(std::span(keys).last(2)).size(), 2u);
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 0u);
}

TEST(KvRoom, FlushWritesWhatIsOnItsWayToASlowerMemory) {
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
TEST(KvRoom, FlushForgetsNoFailure) {
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

TEST(KvRoom, FlushStopsWhenItIsAskedTo) {
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
TEST(KvRoom, FlushIntoAFolderThatIsGoneFails) {
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

TEST(KvRoom, FlushKeepsWhatIsInMemory) {
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

// While flush() writes a block to the folder, its copy in a slower memory does not go there too.
TEST(KvRoom, BlockIsWrittenToTheFolderOnce) {
  bool failing = false;
  KvRig rig({.script = [&](const Piece&, std::uint64_t) {
    return failing ? fail(ErrorCode::io, "injected") : Status{};
  }});
  rig.open({2, 1}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 5));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  const auto store = [&](std::size_t i, std::size_t count) {
    const std::uint64_t block = rig.geometry.block().value;
    auto stored = rig.store->store(std::span(keys).subspan(i, count),
                                   whole(memory).part(i * block, Bytes{count * block}));
    rig.store->poll();
    return *stored;
  };
  // Block 0 leaves tier 0, and stays there too since it is pinned; block 2 fails, so a slot is
  // free.
  ASSERT_EQ(rig.put(std::span(keys).first(2))->stored, 2u);
  rig.fake->hold(true);
  const kvcache::Stored without_bytes = store(2, 1);
  kvcache::Match held = rig.store->match(std::span(keys).first(1));
  failing = true;
  rig.fake->hold(false);
  rig.settle();
  failing = false;
  ASSERT_EQ(without_bytes.poll(), (kvcache::StoredCounts{.failed = 1}));
  const kvcache::StoreStats before = rig.store->stats();
  ASSERT_EQ(before.tiers[0].blocks, 1u);
  ASSERT_EQ(before.tiers[1].blocks, 1u);
  ASSERT_EQ(before.tiers[2].blocks, 1u);
  held = {};

  rig.files->held = true;
  EXPECT_EQ(rig.store->flush(Nanoseconds{0}).error().code, ErrorCode::timed_out);
  ASSERT_EQ(rig.put(std::span(keys).subspan(2, 1))->stored, 1u);
  const kvcache::Stored last = store(3, 2);
  const std::uint64_t in_folder = rig.store->stats().tiers[2].blocks;
  rig.files->release();
  ASSERT_EQ(in_folder, 3u);  // block 1 is there; 0 and 2 are on their way
  EXPECT_EQ(last.wait()->stored, 2u);
  rig.settle();
  EXPECT_TRUE(rig.get(keys).has_value());
}

}  // namespace
}  // namespace headrace
