// SPDX-License-Identifier: Apache-2.0
#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvStoring, CountsWhatBecameOfEachBlock) {
  KvRig rig;
  rig.open({8});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  EXPECT_EQ(*rig.put(keys), (kvcache::StoredCounts{.stored = 4}));
  EXPECT_EQ(*rig.put(keys), (kvcache::StoredCounts{.present = 4}));
  const std::array<kvcache::Key, 2> twice = {kvcache::Key{1, 1}, kvcache::Key{1, 1}};
  EXPECT_EQ(*rig.put(twice), (kvcache::StoredCounts{.stored = 1, .present = 1}));
  EXPECT_EQ(*rig.put({}), kvcache::StoredCounts{});
}

TEST(KvStoring, HasABoundOnWhatIsInFlight) {
  KvRig rig;
  auto options = rig.options({16});
  options.in_flight = rig.geometry.block() * 3;
  rig.open(std::move(options));
  rig.fake->hold(true);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 5));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  const auto stored = rig.store->store(keys, whole(memory));
  ASSERT_TRUE(stored.has_value());
  EXPECT_FALSE(stored->done());
  EXPECT_FALSE(stored->poll().has_value());
  EXPECT_EQ(stored->wait(Nanoseconds{1000}).error().code, ErrorCode::timed_out);
  EXPECT_EQ(rig.store->stats().in_flight, rig.geometry.block() * 3);
  bool told = false;
  stored->on_done([&] { told = true; });
  rig.fake->hold(false);
  EXPECT_EQ(*stored->wait(), (kvcache::StoredCounts{.stored = 3, .refused = 2}));
  EXPECT_TRUE(told);
}

TEST(KvStoring, ManyBytesForAFolder_AreWrittenTwoBlocksAtATime) {
  KvRig rig;
  rig.geometry.kv_heads = 6;
  rig.geometry.head_dim = 1U << 18;  // 36 MiB
  rig.slot = rig.geometry.block();
  rig.open({}, 3);
  rig.files->held = true;
  const std::array<kvcache::Key, 3> keys = {{{1, 1}, {2, 2}, {3, 3}}};
  std::vector<std::byte> bytes(rig.bytes_of(3).value);
  const MemoryRange memory(bytes, kDram);
  const auto stored = rig.store->store(keys, whole(memory));
  rig.poll();
  const MoverStats stats = rig.mover->stats();
  EXPECT_EQ(stats.in_flight_pieces + stats.queued_pieces, 2 * (36 + 1));  // of 1 MiB; and headers
  EXPECT_EQ(rig.store->stats().in_flight, rig.bytes_of(3));
  rig.files->release();
  EXPECT_EQ(*stored->wait(), (kvcache::StoredCounts{.stored = 3}));
}

// The bound is that of a disk, 16 MiB.
TEST(KvStoring, ManyBytesForTwoFolders_AreWrittenTwiceAsManyAtATime) {
  for (const bool second : {false, true}) {
    const TemporaryFolder more;
    KvRig rig;
    rig.geometry.kv_heads = 7;
    rig.geometry.head_dim = 1U << 15;  // 5.25 MiB
    rig.slot = rig.geometry.block();
    auto options = rig.options({}, 9);
    if (second) options.tiers[0].more_folders = {{more.path, options.tiers[0].budget}};
    rig.open(std::move(options));
    rig.files->held = true;
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 9));
    std::vector<std::byte> bytes(rig.bytes_of(9).value);
    const MemoryRange memory(bytes, kDram);
    const auto stored = rig.store->store(keys, whole(memory));
    rig.poll();
    const MoverStats stats = rig.mover->stats();
    EXPECT_EQ(stats.in_flight_pieces + stats.queued_pieces, (second ? 7 : 4) * (6 + 1));
    rig.files->release();
    EXPECT_EQ(*stored->wait(), (kvcache::StoredCounts{.stored = 9}));
  }
}

TEST(KvStoring, ClosedWhileBlocksWaitForTheirTurn_WritesThem) {
  KvRig rig;
  rig.geometry.kv_heads = 7;
  rig.geometry.head_dim = 1U << 15;  // 5.25 MiB
  rig.slot = rig.geometry.block();
  rig.open({}, 5);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 5));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  rig.files->held = true;
  const auto stored = rig.store->store(keys, whole(memory));
  rig.poll();
  EXPECT_EQ(rig.store->close(Nanoseconds{1}).error().code, ErrorCode::timed_out);
  rig.files->release();
  ASSERT_TRUE(rig.store->close().has_value());
  EXPECT_EQ(stored->poll(), (kvcache::StoredCounts{.stored = 5}));
  rig.open({}, 5);
  EXPECT_TRUE(rig.get(keys).has_value());
}

TEST(KvStoring, TakesEachLayoutAndPosition) {
  KvRig rig;
  rig.open({8});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  const std::size_t fragment = rig.geometry.fragment().value;
  const std::vector<std::byte> right = rig.blocks_of(keys);
  // A pool of four blocks, layer after layer; ours are its third and its first.
  std::vector<std::byte> pool(4 * rig.geometry.block().value);
  const std::size_t positions[] = {2, 0};
  for (std::size_t block = 0; block < 2; ++block) {
    for (std::size_t layer = 0; layer < 3; ++layer) {
      std::copy_n(right.data() + (block * 3 + layer) * fragment, fragment,
                  pool.data() + (layer * 4 + positions[block]) * fragment);
    }
  }
  const MemoryRange memory(pool, kDram);
  const auto stored = rig.store->store(
      keys, whole(memory), {.layout = kvcache::Layout::layer_first, .positions = {2, 0}});
  ASSERT_TRUE(stored.has_value()) << stored.error().message;
  EXPECT_EQ(stored->wait()->stored, 2u);
  EXPECT_TRUE(rig.get(keys).has_value());
  std::vector<std::byte> back(pool.size());
  const MemoryRange target(back, kDram);
  const auto load = rig.store->load(keys, whole(target),
                                    {.layout = kvcache::Layout::layer_first, .positions = {2, 0}});
  ASSERT_TRUE(load.has_value());
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(back, pool);
}

// A block that is still pinned by a match but cannot be loaded is not there.
TEST(KvStoring, DamagedBlockIsNotPresent) {
  KvRig rig;
  rig.open({1}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  const auto first = std::span(keys).first(1);
  ASSERT_EQ(rig.put(first)->stored, 1u);
  ASSERT_EQ(rig.put(std::span(keys).last(1))->stored, 1u);
  rig.settle();
  {
    const kvcache::Match match = rig.store->match(first);
    ASSERT_EQ(match.tiers()[0], 1u);
    rig.files->fail_chance = 1;
    EXPECT_FALSE(rig.get(first).has_value());
    rig.files->fail_chance = 0;
    EXPECT_EQ(*rig.put(first), (kvcache::StoredCounts{.refused = 1}));
  }
  EXPECT_EQ(rig.put(first)->stored, 1u);
}

TEST(KvStoring, RefusesMemoryThatDoesNotFit) {
  KvRig rig;
  rig.open({8});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  const Extent all = whole(memory);
  EXPECT_EQ(rig.store->store(keys, all.part(0, all.length - 1_B)).error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.store->store(keys, all, {.positions = {0, 2}}).error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.store->store(keys, all, {.positions = {0}}).error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.store->store(keys, {&memory, 1, all.length}).error().code, ErrorCode::invalid);
}

TEST(KvStoring, FailedCopyIsNoBlock) {
  KvRig rig;
  rig.open({8});
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  EXPECT_EQ(rig.put(keys)->failed, 2u);
  EXPECT_EQ(rig.store->match(keys).size(), 0u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 0u);
}

// A store that finds its block arriving ends as that block does.
TEST(KvStoring, OfABlockThatArrives_HasItsOutcome) {
  for (const bool folder_only : {true, false}) {
    for (const bool fails : {true, false}) {
      KvRig rig;
      auto options = rig.options({4}, 8);
      if (folder_only) options = rig.options({}, 8);
      options.tiers.back().write = kvcache::WriteBack::stored;
      rig.open(options);
      const auto keys = kvcache::keys(rig.geometry, tokens(4));
      std::vector<std::byte> bytes = rig.blocks_of(keys);
      const MemoryRange memory(bytes, kDram);
      rig.files->held = true;
      const auto first = rig.store->store(keys, whole(memory));
      const auto second = rig.store->store(keys, whole(memory));
      rig.poll();  // with memory, the block is there and is being written
      EXPECT_EQ(rig.store->contains(keys)[0], !folder_only);
      const auto third = rig.store->store(keys, whole(memory));
      EXPECT_FALSE(first->done() || second->done() || third->done());
      rig.files->unwritable = fails;
      rig.files->release();
      rig.settle();
      const kvcache::StoredCounts failed{.failed = 1};
      EXPECT_EQ(*first->wait(), fails ? failed : (kvcache::StoredCounts{.stored = 1}));
      for (const auto& each : {second, third}) {
        EXPECT_EQ(*each->wait(), fails ? failed : (kvcache::StoredCounts{.present = 1}));
      }
      const kvcache::StoredCounts all = rig.store->stats().stores;
      EXPECT_EQ(all.failed, fails ? 3u : 0u);
      EXPECT_EQ(all.present, fails ? 0u : 2u);
      // In memory alone does not count: it is written.
      rig.files->unwritable = false;
      const auto again = *rig.put(keys);
      EXPECT_EQ(again.stored, fails ? 1u : 0u);
      EXPECT_EQ(again.present, fails ? 0u : 1u);
      EXPECT_EQ(rig.store->stats().in_flight, 0_B);
      rig.open(options);
      EXPECT_EQ(rig.store->stats().reopened, 1u);
    }
  }
}

// A store of the same key twice counts as one stored and one present.
TEST(KvStoring, OfAKeyGivenTwice_IsPresentOnce) {
  KvRig rig;
  rig.open({4});
  const auto one = kvcache::keys(rig.geometry, tokens(4));
  const std::vector<kvcache::Key> twice{one[0], one[0]};
  EXPECT_EQ(*rig.put(twice), (kvcache::StoredCounts{.stored = 1, .present = 1}));
}

TEST(KvStoring, ClosedWhileABlockArrives_EndsEachStoreOfIt) {
  KvRig rig;
  rig.open({}, 1);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  rig.files->held = true;
  const auto first = rig.store->store(keys, whole(memory));  // the second block waits for a slot
  const auto second = rig.store->store(keys, whole(memory));
  rig.store->poll();
  EXPECT_EQ(rig.store->close(Nanoseconds{1}).error().code, ErrorCode::timed_out);
  rig.files->release();
  ASSERT_TRUE(rig.store->close().has_value());
  EXPECT_EQ(*first->poll(), (kvcache::StoredCounts{.stored = 1, .refused = 1}));
  EXPECT_EQ(*second->poll(), (kvcache::StoredCounts{.present = 1, .refused = 1}));
}

// It may never be written.
TEST(KvStoring, WithoutSlots_WaitsForNoHeaderThatFailedBefore) {
  ManualClock clock;
  KvRig rig({.clock = &clock});
  rig.open({}, 1);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  rig.files->unwritable = true;
  ASSERT_EQ(rig.put(std::span(keys).first(1))->failed, 1u);
  rig.settle();
  clock.advance(std::chrono::seconds{10});
  rig.files->held = true;
  rig.store->poll();  // its header is overwritten again
  std::vector<std::byte> bytes = rig.blocks_of(std::span(keys).last(1));
  const MemoryRange memory(bytes, kDram);
  const auto second = rig.store->store(std::span(keys).last(1), whole(memory));
  EXPECT_EQ(second->poll(), (kvcache::StoredCounts{.refused = 1}));
  rig.files->release();
}

// A disk that accepts no writes for now costs no block that is there.
TEST(KvStoring, ToAClosedDisk_EvictsNothing) {
  ManualClock clock;
  KvRig rig({.clock = &clock});
  rig.open({}, 4);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 7));
  ASSERT_EQ(rig.put(std::span(keys).first(4))->stored, 4u);
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  const auto from = [&](std::size_t i) {
    return whole(memory).part(rig.bytes_of(i).value, rig.geometry.block());
  };
  rig.files->held = true;
  const auto fifth = rig.store->store({&keys[4], 1}, from(4));
  const auto sixth = rig.store->store({&keys[5], 1}, from(5));
  rig.store->poll();
  std::optional<kvcache::Stored> seventh;
  // Called while the sixth block is still being written, so the seventh waits for its slot.
  fifth->on_done([&] { seventh = *rig.store->store({&keys[6], 1}, from(6)); });
  rig.files->full = true;
  rig.files->release();
  EXPECT_EQ(sixth->wait()->failed, 1u);
  ASSERT_TRUE(seventh.has_value());
  EXPECT_EQ(seventh->wait()->refused, 1u);
  EXPECT_EQ(rig.store->stats().tiers[0].dropped, 2u);  // for the writes that failed
  EXPECT_EQ(rig.store->pin(std::span(keys).first(4)).size(), 2u);
}

}  // namespace
}  // namespace headrace
