// SPDX-License-Identifier: Apache-2.0
// Which blocks leave a tier, and where they go; blocks that are used again get a copy in a faster
// tier, by one rule for all tiers.
#include "kvcache/tiers.h"

#include <algorithm>
#include <array>
#include <thread>

#include "backend/cuda/engines/engines.h"
#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvDemotion, BlocksMoveDownTierByTier) {
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

TEST(KvDemotion, UsedBlocksStay) {
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

TEST(KvDemotion, PromotedBlocksLeaveWithoutBeingWrittenAgain) {
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

TEST(KvDemotion, FailedWayDownLosesTheBlockAndNothingElse) {
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

TEST(KvDemotion, BlockIsWrittenToTheFolderOnce) {
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

// Two tiers of memory: the first is full of the latest blocks, the second has the others.
struct KvPromotion : testing::Test {
  void start(std::size_t fast, std::size_t slow, std::size_t blocks) {
    start(rig.options({fast, slow}), blocks);
  }
  void start(kvcache::StoreOptions options, std::size_t blocks) {
    rig.open(std::move(options));
    keys = kvcache::keys(rig.geometry, tokens(4 * blocks));
    for (const kvcache::Key& key : keys) {
      ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
      rig.settle();
    }
  }
  void get(std::size_t i, bool promote = true) {
    const Status got = rig.get({&keys[i], 1}, {.promote = promote});
    EXPECT_TRUE(got.has_value()) << got.error().message;
    rig.settle();
  }
  unsigned tier_of(std::size_t i) { return rig.store->match({&keys[i], 1}).tiers()[0]; }
  std::uint64_t promoted() const { return rig.store->stats().tiers[0].arrived; }
  // Frees slots of the first tier, by stores that fail.
  void make_free(std::size_t slots) {
    const auto others = kvcache::keys(rig.geometry, tokens(4 * slots, 1000));
    std::vector<std::byte> bytes = rig.blocks_of(others);
    const MemoryRange bad(bytes, kDram);
    failing_from = &bad;
    const auto stored = rig.store->store(others, whole(bad));
    EXPECT_EQ(stored->wait()->failed, slots);
    rig.settle();
    failing_from = nullptr;
  }

  const Object* failing_from = nullptr;
  bool failing_copies = false;
  KvRig rig{{.max_in_flight = 1, .script = [this](const Piece& piece, std::uint64_t) {
               const bool block = piece.from.length == rig.geometry.block();
               const bool fails = piece.from.object == failing_from || (failing_copies && block);
               return fails ? fail(ErrorCode::io, "injected") : Status{};
             }}};
  std::vector<kvcache::Key> keys;
};

TEST_F(KvPromotion, IsForBlocksThatAreUsedAgainSoon) {
  start(2, 8, 6);
  EXPECT_EQ(tier_of(0), 1u);
  get(0);  // stored six uses ago, more than two slots
  EXPECT_EQ(promoted(), 0u);
  EXPECT_EQ(tier_of(5), 0u);
  get(0);  // frees a slot
  get(0);
  EXPECT_EQ(tier_of(0), 0u);
  EXPECT_EQ(promoted(), 1u);
  const auto before = rig.store->stats().tiers[0].hits;
  get(0);
  EXPECT_EQ(rig.store->stats().tiers[0].hits, before + 1);
  EXPECT_EQ(promoted(), 1u);
}

TEST_F(KvPromotion, NoScanPushesOutWhatIsThere) {
  start(4, 16, 12);
  const auto before = rig.store->stats().tiers[0].evicted;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 8; ++i) get(i);
  }
  EXPECT_EQ(promoted(), 0u);
  EXPECT_EQ(rig.store->stats().tiers[0].evicted, before);
  for (std::size_t i = 8; i < 12; ++i) EXPECT_EQ(tier_of(i), 0u);
}

// Blocks that recur within as many uses as there are slots are promoted; then copying ends.
TEST_F(KvPromotion, EndsOnceAllIsThereThatFits) {
  start(4, 16, 12);
  for (int round = 0; round < 6; ++round) {
    for (std::size_t i = 0; i < 4; ++i) get(i);
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tier_of(i), 0u) << i;
  const kvcache::StoreStats before = rig.store->stats();
  EXPECT_EQ(before.tiers[0].arrived, 4u);
  for (int round = 0; round < 6; ++round) {
    for (std::size_t i = 0; i < 4; ++i) get(i);
  }
  EXPECT_EQ(promoted(), 4u);
  EXPECT_EQ(rig.store->stats().tiers[1].arrived, before.tiers[1].arrived);
  EXPECT_EQ(rig.store->stats().tiers[0].dropped + rig.store->stats().tiers[1].dropped, 0u);
}

// If more blocks recur than fit, the first ones take the free slots, and stay.
TEST_F(KvPromotion, TakesWhatIsFree) {
  start(4, 16, 12);
  make_free(2);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 8; ++i) get(i);
  }
  EXPECT_EQ(promoted(), 2u);
  EXPECT_EQ(tier_of(0), 0u);
  EXPECT_EQ(tier_of(1), 0u);
  EXPECT_EQ(tier_of(2), 1u);
}

TEST_F(KvPromotion, PushesOutNothingThatIsHeld) {
  start(2, 8, 6);
  {
    const kvcache::Match held = rig.store->match(std::span(keys).last(1));
    const kvcache::Match other = rig.store->match(std::span(keys).subspan(4, 1));
    for (int i = 0; i < 4; ++i) get(0);
    EXPECT_EQ(promoted(), 0u);
    EXPECT_EQ(tier_of(4), 0u);
    EXPECT_EQ(tier_of(5), 0u);
  }
  for (int i = 0; i < 3; ++i) get(0);
  EXPECT_EQ(promoted(), 1u);
}

TEST_F(KvPromotion, IsNotAskedFor) {
  start(4, 8, 6);
  make_free(1);
  for (int i = 0; i < 3; ++i) get(0, false);
  EXPECT_EQ(promoted(), 0u);
  get(0);
  EXPECT_EQ(promoted(), 1u);
}

TEST_F(KvPromotion, HappensOnceForSeveralLoads) {
  start(4, 8, 8);
  make_free(3);
  std::array<std::vector<std::byte>, 3> bytes;
  bytes.fill(std::vector<std::byte>(rig.geometry.block().value));
  std::array<std::unique_ptr<MemoryRange>, 3> into;
  std::vector<kvcache::Load> loads;
  rig.fake->hold(true);
  for (int i = 0; i < 3; ++i) {
    into[i] = std::make_unique<MemoryRange>(bytes[i], kDram);
    loads.push_back(*rig.store->load({keys.data(), 1}, whole(*into[i])));
  }
  rig.fake->hold(false);
  const auto free = rig.store->stats().tiers[0].blocks;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(loads[i].wait().has_value());
    EXPECT_EQ(bytes[i], rig.blocks_of({keys.data(), 1}));
  }
  rig.settle();
  EXPECT_EQ(promoted(), 1u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, free + 1);
}

TEST_F(KvPromotion, HasABoundOnWhatIsInFlight) {
  kvcache::StoreOptions options = rig.options({6, 16}, 32);
  options.in_flight = rig.geometry.block() * 2;
  start(std::move(options), 12);
  ASSERT_TRUE(rig.store->flush().has_value());  // so that evicted blocks leave at once
  const auto some = std::span(keys).first(4);
  ASSERT_TRUE(rig.get(some).has_value());
  ASSERT_TRUE(rig.get(some).has_value());
  rig.settle();
  EXPECT_EQ(promoted(), 2u);
  ASSERT_TRUE(rig.get(some).has_value());
  rig.settle();
  EXPECT_EQ(promoted(), 4u);
}

TEST_F(KvPromotion, LetsLoadsPass) {
  start(4, 8, 8);
  make_free(1);
  ASSERT_TRUE(rig.get({keys.data(), 1}).has_value());
  std::vector<std::byte> bytes(rig.geometry.block().value * 2);
  const MemoryRange memory(bytes, kDram);
  rig.fake->hold(true);
  // Both engines are busy; then come the promotion and a load.
  std::vector<Transfer> others;
  for (std::uint64_t i = 0; i < 2; ++i) {
    others.push_back(rig.mover->copy(whole(memory).part(3000 + i * 1000, 100_B),
                                     whole(memory).part(3000 + i * 1000 + 500, 100_B),
                                     {.priority = Priority::demand}));
  }
  const std::size_t before = rig.fake->accepted().size();
  rig.store->poll();
  const auto load =
      rig.store->load(std::span(keys).subspan(1, 1), whole(memory).part(0, rig.geometry.block()),
                      {.layer_order = false, .promote = false});
  ASSERT_TRUE(load.has_value());
  rig.fake->hold(false);
  EXPECT_TRUE(load->wait().has_value());
  rig.settle();
  EXPECT_EQ(promoted(), 1u);
  const auto pieces = std::vector(rig.fake->accepted());
  const auto place = [&](bool of_load) {
    return std::find_if(pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end(),
                        [&](const Piece& piece) {
                          return piece.from.length == rig.geometry.block() &&
                                 (piece.to.object == &memory) == of_load;
                        });
  };
  ASSERT_NE(place(false), pieces.end());
  EXPECT_LT(place(true), place(false));
}

TEST_F(KvPromotion, ThatFailsCostsNoBlock) {
  start(4, 8, 8);
  make_free(1);
  failing_copies = true;
  get(0);
  failing_copies = false;
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_EQ(stats.tiers[0].arrived, 0u);
  EXPECT_EQ(stats.tiers[0].blocks, 3u);
  EXPECT_FALSE(stats.last_error.empty());
  EXPECT_EQ(tier_of(0), 1u);
  get(0);
  EXPECT_EQ(tier_of(0), 0u);
}

// A copy is freed at once if a faster tier has the block too: it will be demoted from there.
TEST_F(KvPromotion, LeavesTheSlowerCopyToGoFirst) {
  kvcache::StoreOptions options = rig.options({4, 9});
  options.eviction = clock_order;
  start(std::move(options), 12);
  make_free(1);
  get(0);
  ASSERT_EQ(tier_of(0), 0u);
  const auto evicted = rig.store->stats().tiers[1].evicted;
  for (int i = 0; i < 20 && rig.store->stats().tiers[1].evicted == evicted; ++i) {
    const auto more = kvcache::keys(rig.geometry, tokens(4, 3000 + 4 * static_cast<unsigned>(i)));
    get(0);
    ASSERT_TRUE(rig.put(more).has_value());
    rig.settle();
  }
  EXPECT_EQ(rig.store->stats().tiers[1].evicted, evicted + 1);
  EXPECT_EQ(tier_of(0), 0u);
  get(0);
}

// The tiers of a machine with a GPU.
struct KvPromotionToGpu : testing::Test {
  using Tiers = std::vector<std::pair<NodeId, std::size_t>>;
  void start(const Tiers& tiers, std::size_t blocks) {
    keys = kvcache::keys(rig.geometry, tokens(4 * blocks));
    rig.open(tiers, 16);
    ASSERT_TRUE(rig.store->clear() && rig.store->flush());  // of an earlier start
    for (const kvcache::Key& key : keys) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open(tiers, 16);
  }
  unsigned tier_of(std::size_t i) { return rig.store->match({&keys[i], 1}).tiers()[0]; }
  // Waits until this many blocks have arrived in the first tier.
  bool comes(std::uint64_t blocks) {
    for (int i = 0; i < 10'000; ++i) {
      if (rig.store->stats().tiers[0].arrived >= blocks) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return false;
  }

  GpuRig rig;
  std::vector<kvcache::Key> keys;
};

// From the folder through memory of the host, which may have no tier, to the faster of two GPUs.
TEST_F(KvPromotionToGpu, ReachesTheFastestTier) {
  for (const Tiers& tiers : {Tiers{{kGpu, 4}}, Tiers{{kGpu, 4}, {kDram, 8}},
                             Tiers{{kGpu, 4}, {kOtherGpu, 4}, {kDram, 8}}}) {
    const auto slow = static_cast<unsigned>(tiers.size());
    start(tiers, 4);
    EXPECT_EQ(tier_of(0), slow);
    ASSERT_TRUE(rig.get(keys).has_value());
    for (std::size_t i = 0; i < 4 && slow > 1; ++i) EXPECT_EQ(tier_of(i), slow - 1);
    ASSERT_TRUE(rig.get(keys).has_value());
    ASSERT_TRUE(comes(4)) << rig.store->stats().last_error;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tier_of(i), 0u);
    ASSERT_TRUE(rig.get(keys).has_value());
    EXPECT_EQ(rig.store->stats().tiers[0].hits, 4u);
  }
}

// A block that a load found correct may be torn when it is read again for a tier in a GPU.
TEST_F(KvPromotionToGpu, IsNotForATornBlock) {
  keys = kvcache::keys(rig.geometry, tokens(4));
  Backends backends;
  auto disk = std::make_unique<FileBackend>();
  FileBackend& files = *disk;
  backends.add(std::move(disk));
  backends.add(open_cuda(rig.gpu.machine, {kGpuEngine}).value());
  Mover mover(rig.gpu.machine, backends);
  const auto open = [&] {
    rig.store.reset();
    rig.store = kvcache::Store::open(mover, rig.options({{kGpu, 4}}, 16)).value();
  };
  open();
  ASSERT_EQ(rig.put(keys)->stored, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  open();
  ASSERT_TRUE(rig.get(keys).has_value());
  files.torn_after = files.read_bytes + rig.geometry.block().value;
  ASSERT_TRUE(rig.get(keys).has_value());
  for (int i = 0; i < 10'000 && rig.store->stats().last_error.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_NE(stats.last_error.find("not what was written"), std::string::npos) << stats.last_error;
  EXPECT_EQ(stats.tiers[0].arrived, 0u);
  EXPECT_EQ(stats.tiers[0].blocks, 0u);
  EXPECT_EQ(tier_of(0), 1u);
  rig.store.reset();
}

}  // namespace
}  // namespace headrace
