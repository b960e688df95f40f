// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/table.h"

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvMatch, FindsTheLeadingBlocksAndTheirTiers) {
  KvRig rig;
  rig.open({2}, 8);
  const auto all = tokens(4 * 5);
  const auto keys = kvcache::keys(rig.geometry, all);
  for (const std::size_t i : {0, 1, 2, 4}) {
    ASSERT_TRUE(rig.put(std::span(keys).subspan(i, 1)).has_value());
    rig.settle();
  }
  const kvcache::Match match = rig.store->match(std::span<const std::uint32_t>(all));
  ASSERT_EQ(match.size(), 3u);  // the fourth is missing
  EXPECT_EQ(match.tiers()[0], 1u);
  EXPECT_EQ(match.tiers()[2], 0u);
  EXPECT_EQ(match.keys()[1], keys[1]);
  EXPECT_EQ(rig.store->stats().matched, 3u);
  EXPECT_EQ(rig.store->stats().missed, 2u);
}

TEST(KvMatch, HoldsBlocksUntilItGoes) {
  KvRig rig;
  rig.open({2});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  ASSERT_TRUE(rig.put(std::span(keys).first(2)).has_value());
  kvcache::Match match = rig.store->match(keys);
  ASSERT_EQ(match.size(), 2u);
  EXPECT_EQ(rig.put(std::span(keys).subspan(2))->refused, 2u);
  kvcache::Match moved = std::move(match);
  EXPECT_EQ(match.size(), 0u);
  EXPECT_EQ(rig.store->match(keys).size(), 2u);
  EXPECT_EQ(rig.store->stats().pinned, rig.geometry.block() * 2);
  moved = {};
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  EXPECT_EQ(rig.put(std::span(keys).subspan(2))->stored, 2u);
  EXPECT_EQ(rig.store->match(keys).size(), 0u);
}

// A table on its own: records which headers are to be overwritten.
struct KvTable : testing::Test, kvcache::Unlister {
  void SetUp() override { ASSERT_TRUE(table.open().has_value()); }
  void unlist(Slot slot) noexcept override REQUIRES(kvcache::kTable) {
    unlisted.push_back(slot.number);
  }
  // Begins to fill a slot of the folder. Returns the slot.
  std::uint32_t add() REQUIRES(kvcache::kTable) {
    kvcache::Entry& entry = table.make(key, options.geometry.block().value);
    const std::uint32_t slot = *table.last().free.pop();
    table.fill(entry.copies[1], entry, 1, slot);
    return slot;
  }

  KvRig rig;
  const kvcache::StoreOptions options = rig.options({4}, 8);
  kvcache::BlockTable table{*rig.mover, options, *this};
  const kvcache::Key key{1, 2};
  std::vector<std::uint32_t> unlisted;
};

TEST_F(KvTable, SlotOfARemovedBlockIsUnlisted) {
  const kvcache::TableLock lock(table);
  const std::uint32_t slot = add();
  kvcache::Entry& entry = *table.find(key);
  table.ready(entry.copies[1], 1);
  EXPECT_EQ(entry.fastest(), 1u);
  entry.removed = true;
  EXPECT_EQ(entry.fastest(), std::nullopt);
  table.withdraw(entry.copies[1], 1);
  EXPECT_EQ(unlisted, std::vector{slot});
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_EQ(table.last().free.size(), 7u);  // until its header is overwritten
}

TEST_F(KvTable, SlotOfAnEvictedBlockIsFreeAtOnce) {
  const kvcache::TableLock lock(table);
  add();
  kvcache::Copy& copy = table.find(key)->copies[1];
  table.ready(copy, 1);
  table.last().order->remove(copy);
  table.drop(copy, 1);
  EXPECT_TRUE(unlisted.empty());
  EXPECT_EQ(table.last().free.size(), 8u);
}

// The slot may have the header of a block that was removed while the copy was on its way.
TEST_F(KvTable, SlotThatGotNoBlockIsUnlistedIfItHasAHeader) {
  const kvcache::TableLock lock(table);
  const std::uint32_t slot = add();
  const std::vector<std::byte> bytes(options.geometry.block().value);
  table.last().folder->describe(slot, {5, 6}, {}, bytes);
  table.drop(table.find(key)->copies[1], 1);
  EXPECT_EQ(unlisted, std::vector{slot});
}

// Its success reopens the disk.
TEST_F(KvTable, SlotThatIsTriedAgain_StaysSoWhileNoneIsAside) {
  const kvcache::TableLock lock(table);
  kvcache::Tier& folder = table.last();
  while (folder.free.size() > 1) folder.free.pop();
  folder.disk_refused(*folder.free.pop(), {ErrorCode::exhausted, "full"}, Nanoseconds{0});
  folder.free.push_aside(7);
  const auto tried = folder.take_free(1, kvcache::kRest);
  ASSERT_TRUE(tried.has_value());
  EXPECT_EQ(folder.take_free(1, 2 * kvcache::kRest), std::nullopt);
  folder.disk_has(*tried);
  EXPECT_FALSE(folder.any_refuses());
}

}  // namespace
}  // namespace headrace
