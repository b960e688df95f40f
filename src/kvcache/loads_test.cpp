// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <list>
#include <thread>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

struct KvLoading : testing::Test {
  void SetUp() override {
    rig.open({4}, 16);
    keys = kvcache::keys(rig.geometry, tokens(4 * 8));
    for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
    rig.settle();
    bytes.resize(rig.geometry.block().value * keys.size());
    memory.emplace(bytes, kDram);
  }

  KvRig rig;
  std::vector<kvcache::Key> keys;
  std::vector<std::byte> bytes;
  std::optional<MemoryRange> memory;
};

TEST_F(KvLoading, TellsEachLayerInOrder) {
  std::vector<unsigned> order;
  rig.fake->hold(true);
  const auto load = rig.store->load(keys, whole(*memory));
  ASSERT_TRUE(load.has_value());
  EXPECT_EQ(load->layers(), 3u);
  for (unsigned layer = 0; layer < 3; ++layer) {
    EXPECT_FALSE(load->poll(layer).has_value());
    load->on_layer(layer, [&order, layer] { order.push_back(layer); });
  }
  rig.fake->hold(false);
  EXPECT_TRUE(load->wait_layer(0).has_value());
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_TRUE(load->done());
  EXPECT_EQ(order.size(), 3u);
  EXPECT_EQ(order[0], 0u);
  EXPECT_EQ(bytes, rig.blocks_of(keys));
}

TEST_F(KvLoading, CountsHitsByTier) {
  const kvcache::Match match = rig.store->match(keys);
  const auto in_memory = static_cast<std::uint64_t>(std::ranges::count(match.tiers(), 0u));
  EXPECT_TRUE(rig.get(keys).has_value());
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.tiers[0].hits, in_memory);
  EXPECT_EQ(stats.tiers[1].hits, keys.size() - in_memory);
}

TEST_F(KvLoading, HoldsWhatItIsGivenUntilItsEnd) {
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  rig.fake->hold(true);
  const auto load = rig.store->load(keys, whole(*memory), {.keep = std::move(kept)});
  ASSERT_TRUE(load.has_value());
  EXPECT_FALSE(seen.expired());
  rig.fake->hold(false);
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_TRUE(seen.expired());
  kept = std::make_shared<int>(2);
  const std::weak_ptr<int> other = kept;
  const auto stored = rig.store->store(keys, whole(*memory), {.keep = std::move(kept)});
  ASSERT_TRUE(stored.has_value());
  EXPECT_TRUE(stored->wait().has_value());
  EXPECT_TRUE(other.expired());
}

TEST_F(KvLoading, OfWhatIsNotThereStartsNothing) {
  const std::vector<kvcache::Key> some = {keys[0], kvcache::Key{1, 2}};
  const auto load = rig.store->load(some, whole(*memory));
  ASSERT_FALSE(load.has_value());
  EXPECT_EQ(load.error().code, ErrorCode::absent);
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
}

TEST_F(KvLoading, CanBeCancelled) {
  rig.fake->hold(true);
  const auto load = rig.store->load(keys, whole(*memory));
  ASSERT_TRUE(load.has_value());
  load->cancel();
  rig.fake->hold(false);
  const Status outcome = load->wait();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::cancelled);
  EXPECT_LT(load->leading(), keys.size());
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  EXPECT_EQ(rig.store->stats().damaged, 0u);
  EXPECT_TRUE(rig.get(keys).has_value());
}

// If engines copy inside submit(), as cores do, the thread that calls load() does not copy.
TEST(KvLoads, OfMemoryAreNotCopiedByWhoAsksForThem) {
  std::atomic<std::thread::id> of_asking;
  std::atomic<bool> by_who_asks{false};
  const auto look = [&](const Piece&, std::uint64_t) -> Status {
    if (std::this_thread::get_id() == of_asking.load()) by_who_asks = true;
    return {};
  };
  KvRig rig({.inside_chance = 1, .script = look});
  rig.worker = true;
  rig.open({4});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  ASSERT_TRUE(rig.put(keys).has_value());
  std::vector<std::byte> bytes(keys.size() * rig.geometry.block().value);
  const MemoryRange memory(bytes, kDram);
  of_asking = std::this_thread::get_id();
  const auto load = rig.store->load(keys, whole(memory));
  ASSERT_TRUE(load.has_value());
  for (int i = 0; i < 10'000 && !load->done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  of_asking = std::thread::id{};
  EXPECT_TRUE(load->done());
  EXPECT_FALSE(by_who_asks);
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(bytes, rig.blocks_of(keys));
}

// Jobs of a load run before the checksums of blocks that leave.
TEST_F(KvLoading, WaitsForNoBlockThatLeaves) {
  rig.files->held = true;
  const auto load = rig.store->load({&keys[0], 1}, whole(*memory).part(0, rig.geometry.block()),
                                    {.promote = false});
  ASSERT_TRUE(load.has_value());
  const auto others = kvcache::keys(rig.geometry, tokens(4 * 4, 1000));
  std::vector<std::byte> right = rig.blocks_of(others);
  const MemoryRange from(right, kDram);
  const auto stored = rig.store->store(others, whole(from));
  ASSERT_TRUE(stored.has_value());
  const std::uint64_t before = rig.store->stats().tiers[1].arrived;
  rig.files->release();
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(rig.store->stats().tiers[1].arrived, before);
  EXPECT_EQ(stored->wait()->stored, 4u);
  EXPECT_GT(rig.store->stats().tiers[1].arrived, before);
}

// Jobs of urgent loads run before those of later loads.
TEST_F(KvLoading, WaitsForNoneThatIsLessUrgent) {
  const kvcache::Match match = rig.store->match(keys);
  std::vector<kvcache::Key> on_ssd;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (match.tiers()[i] == 1) on_ssd.push_back(keys[i]);
  }
  ASSERT_GE(on_ssd.size(), 2u);
  const Bytes block = rig.geometry.block();
  rig.files->held = true;
  const auto later = rig.store->load({&on_ssd[0], 1}, whole(*memory).part(0, block),
                                     {.priority = Priority::prefetch, .promote = false});
  const auto now = rig.store->load({&on_ssd[1], 1}, whole(*memory).part(block.value, block),
                                   {.layer_order = false, .promote = false});
  ASSERT_TRUE(later.has_value() && now.has_value());
  rig.files->release();
  for (int i = 0; i < 100; ++i) rig.mover->poll();
  ASSERT_EQ(rig.mover->stats().in_flight_pieces + rig.mover->stats().queued_pieces, 0u);
  EXPECT_TRUE(now->wait().has_value());
  EXPECT_FALSE(later->poll(0).has_value());
  EXPECT_TRUE(later->wait_layer(2).has_value());
  EXPECT_FALSE(later->poll(0).has_value());
  EXPECT_TRUE(later->wait().has_value());
}

// A store that finds a slot at the end of a load starts after that end is reported.
TEST(KvLoads, AreToldBeforeStoresTakeTheirRoom) {
  KvRig rig;
  rig.open({2});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 3));
  ASSERT_TRUE(rig.put(std::span(keys).first(1)).has_value());
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange from(bytes, kDram);
  std::vector<std::byte> got(rig.geometry.block().value);
  const MemoryRange into(got, kDram);
  rig.fake->hold(true);
  const auto load = rig.store->load(std::span(keys).first(1), whole(into), {.layer_order = false});
  ASSERT_TRUE(load.has_value());
  const auto stored =
      rig.store->store(std::span(keys).subspan(1), whole(from).part(0, rig.geometry.block() * 2));
  ASSERT_TRUE(stored.has_value());
  const std::uint64_t before = rig.mover->stats().transfers;
  std::optional<std::uint64_t> told;
  load->on_layer(0, [&] { told = rig.mover->stats().transfers; });
  rig.fake->finish(1);
  rig.store->poll();
  EXPECT_EQ(told, before);
  EXPECT_GT(rig.mover->stats().transfers, before);
  rig.fake->hold(false);
  EXPECT_EQ(stored->wait()->stored, 2u);
}

TEST_F(KvLoading, WithDeadlinesIsUrgentInTime) {
  const std::vector<Nanoseconds> deadlines = {
      Nanoseconds{0}, kvcache::kLead + std::chrono::milliseconds{1}, std::chrono::hours{1}};
  const auto load = rig.store->load(keys, whole(*memory), {.deadlines = deadlines});
  ASSERT_TRUE(load.has_value());
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(rig.store->load(keys, whole(*memory), {.deadlines = {Nanoseconds{0}}}).error().code,
            ErrorCode::invalid);
  const std::vector<Nanoseconds> before_now = {Nanoseconds{0}, Nanoseconds{-1}, Nanoseconds{0}};
  EXPECT_EQ(rig.store->load(keys, whole(*memory), {.deadlines = before_now}).error().code,
            ErrorCode::invalid);
}

// Layers before their deadline let others pass, unless a thread waits for them.
TEST(KvDeadlines, DecideWhoGoesFirst) {
  for (const bool waited_for : {false, true}) {
    KvRig rig({.max_in_flight = 1});
    rig.open({4});
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
    ASSERT_TRUE(rig.put(keys).has_value());
    const std::size_t before = rig.fake->accepted().size();
    std::vector<std::byte> a(keys.size() * rig.geometry.block().value);
    std::vector<std::byte> b(a.size());
    const MemoryRange patient(a, kDram);
    const MemoryRange other(b, kDram);
    rig.fake->hold(true);
    const std::vector<Nanoseconds> deadlines = {Nanoseconds{0}, std::chrono::hours{1},
                                                std::chrono::hours{1}};
    const auto first = rig.store->load(keys, whole(patient), {.deadlines = deadlines});
    ASSERT_TRUE(first.has_value());
    if (waited_for) first->urgent(1);
    const auto second = rig.store->load(keys, whole(other));
    ASSERT_TRUE(second.has_value());
    rig.fake->hold(false);
    EXPECT_TRUE(second->wait().has_value());
    EXPECT_TRUE(first->wait().has_value());
    const auto pieces = std::vector(rig.fake->accepted());
    const auto place = [&](const Object& object, unsigned layer) {
      const auto found = std::find_if(
          pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end(), [&](const Piece& p) {
            return p.to.object == &object && p.to.offset == layer * rig.geometry.fragment().value;
          });
      return found - pieces.begin();
    };
    EXPECT_LT(place(patient, 0), place(other, 0));
    EXPECT_EQ(place(patient, 1) < place(other, 2), waited_for);
    // With more pieces a waiting class would get its eighth.
    if (!waited_for) {
      EXPECT_GT(place(patient, 2), place(other, 2));
    }
  }
}

// A load may wait for the store's thread, or for a stream, before it begins.
TEST(KvDeadlines, CountFromWhenTheLoadWasAskedFor) {
  ManualClock clock;
  std::atomic<bool> holding{false};
  std::atomic<bool> entered{false};
  const auto hold_up = [&](const Piece&, std::uint64_t) -> Status {
    entered = true;
    while (holding) std::this_thread::sleep_for(std::chrono::microseconds{100});
    return {};
  };
  KvRig rig({.max_in_flight = 1, .clock = &clock, .script = hold_up});
  rig.worker = true;
  rig.open({4});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_TRUE(rig.put(keys).has_value());
  const std::size_t before = rig.fake->accepted().size();
  std::array<std::vector<std::byte>, 3> bytes;
  bytes.fill(std::vector<std::byte>(keys.size() * rig.geometry.block().value));
  const std::array<MemoryRange, 3> into{MemoryRange(bytes[0], kDram), MemoryRange(bytes[1], kDram),
                                        MemoryRange(bytes[2], kDram)};
  rig.fake->hold(true);
  const std::uint64_t moves = rig.mover->stats().transfers;
  entered = false;
  holding = true;
  const auto first = rig.store->load(keys, whole(into[0]), {.layer_order = false});
  const auto soon = rig.store->load(
      keys, whole(into[1]), {.deadlines = std::vector<Nanoseconds>(3, std::chrono::minutes{1})});
  const auto other = rig.store->load(keys, whole(into[2]));
  ASSERT_TRUE(first && soon && other);
  for (int i = 0; i < 10'000 && !entered; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  clock.advance(std::chrono::minutes{1});
  holding = false;
  for (int i = 0; i < 10'000 && rig.mover->stats().transfers < moves + 7; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  rig.fake->hold(false);
  for (const auto& load : {*first, *soon, *other}) EXPECT_TRUE(load.wait().has_value());
  const auto pieces = std::vector(rig.fake->accepted());
  const auto last_to = [&](const Object& object) {
    std::size_t last = 0;
    for (std::size_t i = before; i < pieces.size(); ++i) {
      if (pieces[i].to.object == &object) last = i;
    }
    return last;
  };
  EXPECT_LT(last_to(into[1]), last_to(into[2]));
}

TEST_F(KvLoading, FailedReadTellsWhatIsLeft) {
  rig.files->fail_chance = 1;
  const auto load = rig.store->load(keys, whole(*memory), {.promote = false});
  ASSERT_TRUE(load.has_value());
  const Status outcome = load->wait();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::io);
  EXPECT_EQ(load->leading(), 0u);  // the first is on SSD
  EXPECT_EQ(rig.store->stats().damaged, 4u);
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 0u);
}

// A block that is torn in one layer is not copied on in any layer that ends later.
TEST_F(KvLoading, NoLayerIsGoodWithoutTheBytesOfABlockThatFailedInAnother) {
  for (const bool promote : {true, false}) {
    for (const std::uint64_t torn : {0, 2}) {
      KvRig one;
      one.open({4}, 8);
      const auto some = kvcache::keys(one.geometry, tokens(4 * 8));
      for (const kvcache::Key& key : some) ASSERT_TRUE(one.put({&key, 1}).has_value());
      ASSERT_TRUE(one.store->flush().has_value());
      one.open({4}, 8);
      const std::size_t fragment = one.geometry.fragment().value;
      {
        std::fstream file(one.folder.path / "blocks",
                          std::ios::in | std::ios::out | std::ios::binary);
        for (std::size_t slot = 0; slot < 8; ++slot) {
          file.seekp(static_cast<std::streamoff>(slot * 4096 + torn * fragment + 3));
          file << "torn";
        }
      }
      std::vector<std::byte> got(one.geometry.block().value);
      const MemoryRange target(got, kDram);
      const std::vector<std::byte> right = one.blocks_of({&some[0], 1});
      const auto load = one.store->load({&some[0], 1}, whole(target), {.promote = promote});
      ASSERT_TRUE(load.has_value());
      EXPECT_FALSE(load->wait_layer(static_cast<unsigned>(torn)).has_value());
      for (unsigned layer = 0; layer < 3; ++layer) {
        if (!load->wait_layer(layer).has_value()) continue;
        EXPECT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(layer * fragment),
                               got.begin() + static_cast<std::ptrdiff_t>((layer + 1) * fragment),
                               right.begin() + static_cast<std::ptrdiff_t>(layer * fragment)))
            << layer;
      }
      EXPECT_EQ(load->leading(), 0u);
      EXPECT_EQ(one.store->stats().damaged, 1u);
    }
  }
}

TEST_F(KvLoading, RefusesTwoBlocksAtOnePosition) {
  const auto load =
      rig.store->load(std::span(keys).first(3), whole(*memory), {.positions = {1, 0, 1}});
  ASSERT_FALSE(load.has_value());
  EXPECT_EQ(load.error().code, ErrorCode::invalid);
  EXPECT_NE(load.error().message.find("position 1"), std::string::npos) << load.error().message;
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
}

TEST_F(KvLoading, OfNothingIsDone) {
  const auto load = rig.store->load({}, Extent{&*memory, 0, 0_B});
  ASSERT_TRUE(load.has_value());
  EXPECT_TRUE(load->wait().has_value());
}

TEST_F(KvLoading, HandleOutlivesItsStore) {
  const auto load = rig.store->load(keys, whole(*memory));
  ASSERT_TRUE(load.has_value());
  rig.store.reset();
  EXPECT_TRUE(load->done());
  (void)load->wait();
  load->cancel();
}

}  // namespace
}  // namespace headrace
