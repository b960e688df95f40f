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

}  // namespace
}  // namespace headrace
