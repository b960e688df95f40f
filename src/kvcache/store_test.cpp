// SPDX-License-Identifier: Apache-2.0
// What engines need of a store: gaps, outcomes by block, memory of blocks, times of writing.
#include <fstream>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using namespace test;

// Bytes of blocks, with an extent for each, far apart and in any order.
struct Scattered {
  explicit Scattered(Bytes block, std::size_t blocks) : bytes(3 * block.value * blocks) {
    for (std::size_t i = blocks; i > 0; --i) {
      extents.push_back({&memory, (3 * i - 2) * block.value, block});
    }
  }
  std::span<std::byte> of(std::size_t i) {
    return std::span(bytes).subspan(extents[i].offset, extents[i].length.value);
  }

  std::vector<std::byte> bytes;
  MemoryRange memory{bytes, kDram};
  std::vector<Extent> extents;
};

TEST(KvStore, AnExtentForEachBlock) {
  KvRig rig;
  rig.open({4}, 64);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 20));
  Scattered from(rig.geometry.block(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::ranges::copy(rig.blocks_of({&keys[i], 1}), from.of(i).begin());
  }
  ASSERT_EQ(rig.store->store(keys, from.extents)->wait()->stored, 20u);
  rig.settle();
  EXPECT_TRUE(rig.get(keys).has_value());
  for (const bool layer_order : {true, false}) {
    Scattered into(rig.geometry.block(), keys.size());
    const auto load = rig.store->load(keys, into.extents, {.layer_order = layer_order});
    ASSERT_TRUE(load->wait().has_value());
    EXPECT_EQ(into.bytes, from.bytes);
  }
  Scattered few(rig.geometry.block(), 2);
  EXPECT_EQ(rig.store->load(keys, few.extents).error().code, ErrorCode::invalid);
}

TEST(KvStore, OwnAllocator_IsAskedForEachTier) {
  KvRig rig;
  auto options = rig.options({2, 4});
  std::vector<std::uint64_t> asked;
  Bytes missing{0};
  options.allocate = [&](const Placement& memory,
                         Bytes bytes) -> Result<std::shared_ptr<const Object>> {
    asked.push_back(bytes.value);
    return allocate(rig.machine, bytes - missing, memory);
  };
  rig.open(options);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{2 * 4096, 4 * 4096}));
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(keys)->stored, 2U);
  EXPECT_TRUE(rig.get(keys).has_value());
  rig.store.reset();
  missing = 4_KiB;
  const auto refused = kvcache::Store::open(*rig.mover, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

TEST(KvStore, LoadsAndPinsAcrossGaps) {
  KvRig rig;
  rig.open({2}, 64);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 7));
  for (const std::size_t there : {0, 2, 3, 5}) ASSERT_EQ(rig.put({&keys[there], 1})->stored, 1u);
  rig.settle();
  EXPECT_EQ(rig.store->match(keys).size(), 1u);
  {
    const kvcache::Match pinned = rig.store->pin(keys);
    ASSERT_EQ(pinned.size(), 4u);
    EXPECT_EQ(pinned.keys()[3], keys[5]);
    EXPECT_EQ(rig.store->stats().pinned, rig.geometry.block() * 4);
  }
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  std::vector<std::byte> bytes(rig.blocks_of(keys).size(), std::byte{7});
  const MemoryRange memory(bytes, kDram);
  EXPECT_EQ(rig.store->load(keys, whole(memory)).error().code, ErrorCode::absent);
  const auto load = rig.store->load(keys, whole(memory), {.skip_missing = true});
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(load->leading(), 1u);
  const auto right = rig.blocks_of(keys);
  const auto block = static_cast<std::ptrdiff_t>(rig.geometry.block().value);
  for (std::ptrdiff_t i = 0; i < 7; ++i) {
    const bool there = i == 0 || i == 2 || i == 3 || i == 5;
    EXPECT_EQ(load->loaded(static_cast<std::size_t>(i)), there) << i;
    EXPECT_EQ(std::equal(&bytes[0] + i * block, &bytes[0] + (i + 1) * block, &right[0] + i * block),
              there);
    const std::byte first = bytes[static_cast<std::size_t>(i * block)];
    EXPECT_TRUE(there || first == std::byte{7}) << "written, though missing";
  }
  const auto none = rig.store->load(std::span(keys).last(1),
                                    whole(memory).part(0, Bytes{0} + rig.geometry.block()),
                                    {.skip_missing = true});
  EXPECT_TRUE(none->wait().has_value());
  EXPECT_FALSE(none->loaded(0));
}

// A damaged block in the middle is the only one that is lost.
TEST(KvStore, SaysWhichBlocksOfALoadFailed) {
  KvRig rig;
  rig.open({1}, 64);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  ASSERT_EQ(rig.put(keys)->stored, 4u);
  rig.settle();
  rig.files->torn_after = rig.files->read_bytes + 1;  // the second read and on
  std::vector<std::byte> bytes(rig.geometry.block().value * 3);
  const MemoryRange memory(bytes, kDram);
  const auto load = rig.store->load(std::span(keys).first(3), whole(memory),
                                    {.layer_order = false, .promote = false});
  EXPECT_EQ(load->wait().error().code, ErrorCode::io);
  EXPECT_TRUE(load->loaded(0));
  EXPECT_FALSE(load->loaded(1));
  EXPECT_FALSE(load->loaded(2));
  EXPECT_EQ(load->leading(), 1u);
}

TEST(KvStore, AFolderMayBeTheOnlyTier) {
  for (const kvcache::Layout layout : {kvcache::Layout::page_first, kvcache::Layout::layer_first}) {
    KvRig rig;
    rig.open({}, 5);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 9));
    const auto put = [&](std::span<const kvcache::Key> some) {
      const std::vector<std::byte> pages = rig.blocks_of(some);
      std::vector<std::byte> bytes(pages.size());
      const std::size_t fragment = rig.geometry.fragment().value;
      for (std::size_t i = 0; i < pages.size() / fragment; ++i) {
        const std::size_t block = i / 3;
        const std::size_t layer = i % 3;
        const std::size_t to =
            layout == kvcache::Layout::page_first ? i : layer * some.size() + block;
        std::copy_n(&pages[i * fragment], fragment, &bytes[to * fragment]);
      }
      const MemoryRange memory(bytes, kDram);
      return *rig.store->store(some, whole(memory), {.layout = layout})->wait();
    };
    EXPECT_EQ(put(std::span(keys).first(4)).stored, 4u);
    EXPECT_TRUE(rig.get(std::span(keys).first(4)).has_value());
    EXPECT_EQ(put(std::span(keys).last(5)).stored, 5u);  // in place of the first
    EXPECT_EQ(rig.store->stats().tiers[0].blocks, 5u);
    EXPECT_EQ(rig.store->stats().in_flight, 0_B);
    rig.open({}, 5);  // nothing was flushed
    EXPECT_EQ(rig.store->match(std::span(keys).last(5)).size(), 5u);
    EXPECT_TRUE(rig.get(std::span(keys).last(5)).has_value());
    ASSERT_EQ(*rig.store->clear(), 5u);
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.files->full = true;
    EXPECT_EQ(put(std::span(keys).first(2)).failed, 2u);
    EXPECT_FALSE(rig.store->contains(keys)[0]);
    rig.files->full = false;
    (void)rig.store->flush();  // the disk has space again
    rig.files->held = true;
    const std::vector<std::byte> bytes = rig.blocks_of(std::span(keys).first(1));
    const MemoryRange memory(std::span(const_cast<std::byte*>(bytes.data()), bytes.size()), kDram);
    const auto stored = rig.store->store(std::span(keys).first(1), whole(memory));
    rig.store->poll();
    EXPECT_EQ(rig.store->flush(1ms).error().code, ErrorCode::timed_out);
    rig.files->release();
    ASSERT_TRUE(rig.store->flush().has_value());
    EXPECT_EQ(stored->wait()->stored, 1u);
  }
}

TEST(KvStore, WritesWhileNoLoadRuns) {
  KvRig rig;
  auto options = rig.options({4}, 64);
  options.tiers.back().write = kvcache::WriteBack::idle;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 3));
  ASSERT_EQ(rig.put(std::span(keys).first(2))->stored, 2u);
  rig.settle();
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);
  rig.open(options);  // as after a crash: nothing was flushed
  ASSERT_EQ(rig.store->match(keys).size(), 2u);

  rig.files->held = true;
  std::vector<std::byte> bytes(rig.geometry.block().value);
  const MemoryRange memory(bytes, kDram);
  const auto load = rig.store->load({&keys[0], 1}, whole(memory), {.promote = false});
  ASSERT_EQ(rig.put(std::span(keys).last(1))->stored, 1u);
  rig.settle();
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);
  rig.files->release();
  EXPECT_TRUE(load->wait().has_value());
  rig.settle();
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 3u);
}

TEST(KvStore, NothingIsEvictedForAWriteWhileIdle) {
  KvRig rig;
  auto options = rig.options({4}, 4);
  options.tiers.back().write = kvcache::WriteBack::idle;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 7));
  for (const kvcache::Key& key : keys) {
    ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
  }
  EXPECT_EQ(rig.store->pin(keys).size(), 7u);
  EXPECT_EQ(rig.store->stats().tiers[1].dropped, 0u);
}

// While a block is copied to another memory, it is not forgotten.
TEST(KvStore, WritesAfterAPromotion) {
  KvRig rig;
  auto options = rig.options({1, 2}, 8);
  options.tiers.back().write = kvcache::WriteBack::idle;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 3));
  ASSERT_EQ(rig.put(std::span(keys).first(1))->stored, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open(options);
  rig.files->held = true;
  std::vector<std::byte> bytes(rig.bytes_of(2).value);
  const MemoryRange memory(bytes, kDram);
  const auto first = whole(memory).part(0, rig.geometry.block());
  const auto running = rig.store->load({&keys[0], 1}, first, {.promote = false});
  ASSERT_EQ(rig.put({&keys[1], 1})->stored, 1u);
  ASSERT_EQ(rig.put({&keys[2], 1})->stored, 1u);  // the block before moves to the second memory
  rig.poll();
  ASSERT_EQ(*rig.store->remove({&keys[2], 1}), 1u);
  const auto second = whole(memory).part(rig.bytes_of(1).value, rig.geometry.block());
  ASSERT_TRUE(rig.store->load({&keys[1], 1}, second)->wait().has_value());
  rig.fake->hold(true);
  rig.store->poll();  // the promotion
  rig.files->release();
  ASSERT_TRUE(running->wait().has_value());
  rig.store->poll();  // no load runs
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 1u);
  EXPECT_EQ(rig.store->stats().tiers[2].blocks, 2u);
}

TEST(KvStore, ClosedDuringWrites_HasWholeBlocks) {
  for (const auto mode : {kvcache::WriteBack::idle, kvcache::WriteBack::stored}) {
    for (const unsigned workers : {0U, 2U}) {
      KvRig rig({}, workers > 0);
      auto options = rig.options({8}, 16);
      options.tiers.back().write = mode;
      options.workers = workers;
      rig.open(options);
      const auto keys = kvcache::keys(rig.geometry, tokens(4 * 6));
      std::vector<std::byte> bytes = rig.blocks_of(keys);
      const MemoryRange memory(bytes, kDram);
      rig.files->held = true;
      const auto stored = rig.store->store(keys, whole(memory));
      const auto writes = [&] {
        rig.poll();
        return rig.store->stats().tiers[1].blocks > 0;
      };
      while (!writes()) std::this_thread::yield();
      EXPECT_EQ(rig.store->close(1ms).error().code, ErrorCode::timed_out);
      EXPECT_TRUE(rig.store->closed());
      rig.files->release();
      ASSERT_TRUE(rig.store->close().has_value());
      ASSERT_TRUE(stored->done());
      rig.open(options);
      const kvcache::Match there = rig.store->pin(keys);
      EXPECT_GT(there.size(), 0u);
      if (mode == kvcache::WriteBack::stored) {
        EXPECT_EQ(there.size(), stored->wait()->stored);
      }
      EXPECT_TRUE(rig.get(there.keys()).has_value());
      EXPECT_EQ(rig.store->stats().damaged, 0u);
    }
  }
}

TEST(KvStore, StoredMayMeanOnDisk) {
  KvRig rig;
  auto options = rig.options({4}, 64);
  options.tiers.back().write = kvcache::WriteBack::stored;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 3));
  EXPECT_EQ(rig.put(std::span(keys).first(2))->stored, 2u);
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 2u);
  EXPECT_EQ(rig.store->stats().in_flight, 0_B);
  rig.files->unwritable = true;
  EXPECT_EQ(rig.put(std::span(keys).last(1))->failed, 1u);
  EXPECT_EQ(rig.store->stats().stores.failed, 1u);
  EXPECT_EQ(rig.store->match(keys).size(), 3u);  // in memory
  rig.files->unwritable = false;
  rig.open(options);
  EXPECT_EQ(rig.store->match(keys).size(), 2u);
}

TEST(KvStore, TouchedBlocksStayAndDroppedOnesAreListed) {
  KvRig rig;
  auto options = rig.options({3});
  options.eviction = *eviction_order("sieve");
  options.list_dropped = true;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  ASSERT_EQ(rig.put(std::span(keys).first(3))->stored, 3u);
  rig.store->touch(std::span(keys).first(1));
  ASSERT_EQ(rig.put(std::span(keys).last(1))->stored, 1u);
  EXPECT_TRUE(rig.store->contains(keys)[0]);
  ASSERT_EQ(*rig.store->remove(std::span(keys).last(1)), 1u);
  EXPECT_EQ(rig.store->take_dropped(), (std::vector{keys[1]}));
  EXPECT_TRUE(rig.store->take_dropped().empty());
}

TEST(KvStore, AFolderOfAnotherModelIsEmptiedOnRequest) {
  KvRig rig;
  rig.open({2}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.store.reset();
  auto options = rig.options({2}, 8);
  options.geometry.revision = "other weights";
  EXPECT_EQ(kvcache::Store::open(*rig.mover, options).error().code, ErrorCode::invalid);
  options.tiers.back().discard_other = true;
  rig.open(options);
  EXPECT_EQ(rig.store->stats().reopened, 0u);
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open(options);
  EXPECT_EQ(rig.store->stats().reopened, 2u);
  rig.store.reset();
  std::filesystem::resize_file(rig.folder.path / "index", 0);  // of no store
  EXPECT_EQ(kvcache::Store::open(*rig.mover, options).error().code, ErrorCode::invalid);
}

// A header whose checksum fits shows that the index is a store's.
TEST(KvStore, AFolderWithADamagedSuperblockIsEmptiedOnRequestIfItListsBlocks) {
  for (const bool lists : {true, false}) {
    KvRig rig;
    rig.open({2}, 8);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
    ASSERT_EQ(rig.put(std::span(keys).first(lists ? 2 : 0))->stored, lists ? 2u : 0u);
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.store.reset();
    {
      std::fstream index(rig.folder.path / "index", std::ios::in | std::ios::out);
      index << "no superblock";
    }
    auto options = rig.options({2}, 8);
    const auto refused = kvcache::Store::open(*rig.mover, options);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find(lists ? "is damaged; remove" : "lists no KV blocks"),
              std::string::npos)
        << refused.error().message;
    options.tiers.back().discard_other = true;
    const auto opened = kvcache::Store::open(*rig.mover, options);
    EXPECT_EQ(opened.has_value(), lists);
    EXPECT_EQ(lists ? (*opened)->stats().reopened : 0, 0u);
  }
}

// Whether somebody has removed `lock` or not.
TEST(KvStore, AFolderIsLockedByItsIndexToo) {
  KvRig rig;
  for (const bool made_before : {false, true}) {
    rig.open({2}, 8);
    std::filesystem::remove(rig.folder.path / "lock");
    const auto second = kvcache::Store::open(*rig.mover, rig.options({2}, 8));
    ASSERT_FALSE(second.has_value()) << made_before;
    EXPECT_EQ(second.error().code, ErrorCode::denied);
    EXPECT_NE(second.error().message.find("is open already"), std::string::npos);
  }
}

TEST(KvStore, OnlyFoundBlocksAreComparedOnRequest) {
  KvRig rig;
  auto options = rig.options({1}, 8);
  options.tiers.back().verify = kvcache::Verify::found;
  rig.open(options);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  for (const kvcache::Key& key : keys) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.files->torn_after = 0;
  std::vector<std::byte> bytes(rig.geometry.block().value);
  const MemoryRange memory(bytes, kDram);
  const auto load = [&] {
    return rig.store->load({&keys[0], 1}, whole(memory), {.promote = false})->wait();
  };
  EXPECT_TRUE(load().has_value());  // written by this process
  EXPECT_NE(bytes, rig.blocks_of({&keys[0], 1}));
  rig.files->torn_after = UINT64_MAX;
  rig.open(options);
  rig.files->torn_after = 0;
  EXPECT_EQ(load().error().code, ErrorCode::io);
}

// Slots for many blocks take time, so a worker begins such a load.
TEST(KvStore, ALoadOfManyBlocks) {
  KvRig rig({}, true);
  rig.worker = true;
  rig.open({64}, 400);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 300));
  for (std::size_t i = 0; i < keys.size(); i += 20) {
    ASSERT_EQ(rig.put(std::span(keys).subspan(i, 20))->stored, 20u);
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rig.get(keys).has_value());
  std::vector<std::byte> bytes(rig.geometry.block().value * keys.size());
  const MemoryRange memory(bytes, kDram);
  const auto load = rig.store->load(keys, whole(memory));
  load->cancel();
  (void)load->wait();
  EXPECT_TRUE(load->done());
}

// Blocks of any size: a key has one size, which its extents give.
struct KvSizes : testing::Test {
  // Keys of blocks of one to five slots.
  const std::vector<kvcache::Key> keys = kvcache::keys(small_geometry(), tokens(4 * 40));
  ManualClock clock;
  KvRig rig{{.clock = &clock}, false, any_size_geometry(true)};

  std::size_t slots_of(const kvcache::Key& key) const {
    return (rig.size_of(key).value + 4095) / 4096;
  }
  std::size_t slots_of(std::span<const kvcache::Key> some) const {
    std::size_t sum = 0;
    for (const kvcache::Key& key : some) sum += slots_of(key);
    return sum;
  }
  std::vector<kvcache::Key> there() const {
    std::vector<kvcache::Key> found;
    const auto has = rig.store->contains(keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (has[i]) found.push_back(keys[i]);
    }
    return found;
  }
};

TEST_F(KvSizes, ShareOneBudget_AndAreFoundAgain) {
  for (const bool memory : {false, true}) {
    memory ? rig.open({16}, 40) : rig.open({}, 40);
    for (const kvcache::Key& key : keys) {
      ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
      rig.settle();
    }
    const auto found = there();
    EXPECT_TRUE(rig.get(found).has_value());
    EXPECT_GT(found.size(), keys.size() / 4);
    std::uint64_t used = 0;
    for (const kvcache::TierStats& tier : rig.store->stats().tiers) used += tier.used.value;
    EXPECT_GE(used, slots_of(found) * 4096);
    EXPECT_GE(used + 5 * 4096, (memory ? 55u : 40u) * 4096);  // nothing fragments
    ASSERT_TRUE(rig.store->flush().has_value());
    const auto written = rig.store->stats().tiers.back().blocks;
    memory ? rig.open({16}, 40) : rig.open({}, 40);
    EXPECT_EQ(rig.store->stats().reopened, written);
    EXPECT_TRUE(rig.get(there()).has_value());
    ASSERT_TRUE(rig.store->clear() && rig.store->flush());
    memory ? rig.open({16}, 40) : rig.open({}, 40);
    EXPECT_EQ(rig.store->stats().reopened, 0u);
  }
}

TEST_F(KvSizes, OfAnotherLengthThanItsBlock_IsRefusedAndAbsent) {
  rig.open({16});
  const std::span one(keys.data(), 1);
  ASSERT_EQ(rig.put(one)->stored, 1u);
  const auto sizes = rig.store->sizes(std::span(keys).first(2));
  EXPECT_EQ(sizes, (std::vector<std::optional<Bytes>>{rig.size_of(keys[0]), std::nullopt}));
  std::vector<std::byte> bytes(rig.size_of(keys[0]).value + 1);
  const MemoryRange memory(bytes, kDram);
  EXPECT_EQ(rig.store->store(one, whole(memory))->wait()->refused, 1u);
  const auto load = rig.store->load(one, whole(memory));
  ASSERT_FALSE(load.has_value());
  EXPECT_EQ(load.error().code, ErrorCode::absent);
  EXPECT_NE(load.error().message.find("with this size"), std::string::npos);
  const auto skipped = rig.store->load(one, whole(memory), {.skip_missing = true});
  ASSERT_TRUE(skipped.has_value() && skipped->wait().has_value());
  EXPECT_FALSE(skipped->loaded(0));
  EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size()));
  EXPECT_EQ(rig.store->store(keys, whole(memory)).error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.store->load(one, {&memory, 0, 0_B}).error().code, ErrorCode::invalid);
}

TEST_F(KvSizes, LargerThanTheTier_IsRefusedAndCostsNothing) {
  rig.open({4});
  const kvcache::Key small{5, 3};  // one slot
  const kvcache::Key large{6, 5 * 4096 - 1};
  ASSERT_EQ(slots_of(large), 5u);
  ASSERT_EQ(rig.put({&small, 1})->stored, 1u);
  EXPECT_EQ(rig.put({&large, 1})->refused, 1u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 1u);
}

// Neighbouring slots are one write, so a large block costs no more than one of a fixed size.
TEST_F(KvSizes, InNeighbouringSlots_AreOneCopy) {
  rig.open({}, 16);
  const std::array<kvcache::Key, 3> three{{{1, 5 * 4096 - 1}, {2, 5 * 4096 - 1}, {3, 4 * 4096}}};
  for (int round = 0; round < 3; ++round) {
    for (const kvcache::Key& key : three) {
      const std::uint64_t before = rig.files->writes.load();
      ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
      EXPECT_EQ(rig.files->writes.load() - before, 2u);  // and one of its headers
    }
    ASSERT_EQ(rig.store->remove(std::span(three).subspan(1, 1)).value(), 1u);
    rig.settle();
    ASSERT_EQ(rig.store->remove(three).value(), 2u);
    rig.settle();
    rig.open({}, 16);
  }
  // A block that is evicted leaves its slots in order.
  for (const kvcache::Key& key : three) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  const std::uint64_t before = rig.files->writes.load();
  const kvcache::Key fourth{4, 5 * 4096 - 1};
  ASSERT_EQ(rig.put({&fourth, 1})->stored, 1u);
  EXPECT_EQ(rig.files->writes.load() - before, 2u);
}

// A lost disk costs the blocks that have their slots there, and no other.
TEST_F(KvSizes, OnSeveralDisks_AreEachOnOne) {
  auto options = rig.options({}, 20);
  kvcache::TierOptions& tier = options.tiers[0];
  tier.more_folders = {{tier.folder / "second", rig.slot * 20}};
  tier.folder /= "first";
  rig.open(options);
  std::vector<kvcache::Key> stored;
  for (const kvcache::Key& key : keys) {
    if (slots_of(stored) + slots_of(key) > 30) break;
    ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    stored.push_back(key);
  }
  std::size_t alone = 0;
  for (const char* const disk : {"first", "second"}) {
    auto one = rig.options({}, 20);
    one.tiers[0].folder /= disk;
    rig.open(one);
    EXPECT_GT(rig.store->stats().reopened, 2u);
    alone += rig.store->stats().reopened;
    EXPECT_TRUE(rig.get(there()).has_value());
  }
  EXPECT_EQ(alone, stored.size());
}

// Otherwise loads could take each slot that becomes free, and the store would never end.
TEST_F(KvSizes, StoreThatWaitsForSeveralSlots_GetsThoseThatLoadsWouldFill) {
  rig.open({5}, 40);
  const kvcache::Key large{100, 5 * 4096 - 1};
  std::vector<kvcache::Key> small;
  for (std::uint64_t i = 1; i <= 12; ++i) small.push_back({i, 3});
  for (const kvcache::Key& key : small) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.files->held = true;
  std::vector<std::byte> bytes(4);
  const MemoryRange memory(bytes, kDram);
  const auto load = [&](const kvcache::Key& key) {
    return *rig.store->load({&key, 1}, rig.extents(memory, {&key, 1}));
  };
  const kvcache::Load first = load(small[0]);
  rig.poll();
  std::vector<std::byte> content = rig.blocks_of({&large, 1});
  const MemoryRange from(content, kDram);
  const auto stored = *rig.store->store({&large, 1}, rig.extents(from, {&large, 1}));
  ASSERT_FALSE(stored.done());
  const kvcache::Load second = load(small[1]);
  rig.poll();
  EXPECT_EQ(rig.store->stats().tiers[0].used, rig.slot);  // of the first load
  rig.files->release();
  EXPECT_TRUE(first.wait().has_value() && second.wait().has_value());
  EXPECT_EQ(stored.wait()->stored, 1u);
}

TEST_F(KvSizes, OnUnequalDisks_EvictNothingFromOneThatIsTooSmall) {
  auto options = rig.options({}, 20);
  kvcache::TierOptions& tier = options.tiers[0];
  tier.more_folders = {{tier.folder / "second", rig.slot * 4}};
  tier.folder /= "first";
  rig.open(options);
  for (std::uint64_t i = 1; i <= 24; ++i) {
    const kvcache::Key small{i, 3};  // one slot
    ASSERT_EQ(rig.put({&small, 1})->stored, 1u);
  }
  const kvcache::Key large{100, 5 * 4096 - 1};
  EXPECT_EQ(rig.put({&large, 1})->stored, 1u);
  EXPECT_EQ(rig.store->stats().tiers[0].dropped, 5u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 20u);
}

TEST_F(KvSizes, HaveNoLayers_AndFoldersOfTheirOwn) {
  kvcache::Geometry wrong = rig.geometry;
  wrong.layers = 2;
  EXPECT_FALSE(check(wrong).has_value());
  rig.open({}, 8);
  ASSERT_EQ(rig.put(std::span(keys).first(1))->stored, 1u);
  rig.store.reset();
  rig.geometry.any_size = false;
  EXPECT_EQ(kvcache::Store::open(*rig.mover, rig.options({}, 8)).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
