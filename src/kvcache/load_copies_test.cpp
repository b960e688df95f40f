// SPDX-License-Identifier: Apache-2.0
// Both copies of blocks that pass through memory of CPUs.
#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <thread>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

// The second copy of a block from SSD, and its checksums, are as urgent as the first.
TEST(KvDeadlines, AreThoseOfWhatComesFromAFolderToo) {
  struct Case {
    Priority priority;
    Nanoseconds passes;  // the time before its checksums are compared
    bool first;          // it is copied before demand that came later
  };
  for (const Case& one : {Case{Priority::demand, Nanoseconds{0}, false},
                          Case{Priority::demand, std::chrono::hours{1}, true},
                          Case{Priority::prefetch, Nanoseconds{0}, false},
                          Case{Priority::prefetch, std::chrono::hours{1}, true},
                          Case{Priority::migration, std::chrono::hours{1}, true}}) {
    ManualClock clock;
    KvRig rig({.max_in_flight = 1, .clock = &clock});
    rig.open({4}, 8);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 8));
    for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open({4}, 8);
    const std::size_t before = rig.fake->accepted().size();
    const Bytes block = rig.geometry.block();
    std::vector<std::byte> a(block.value);
    std::vector<std::byte> b(block.value);
    const MemoryRange patient(a, kDram);
    const MemoryRange other(b, kDram);
    const std::vector<Nanoseconds> deadlines(3, std::chrono::hours{1});
    rig.files->held = true;
    const auto load =
        rig.store->load(std::span(keys).first(1), whole(patient),
                        {.layer_order = false, .priority = one.priority, .deadlines = deadlines});
    const auto demand =
        rig.store->load(std::span(keys).subspan(1, 1), whole(other), {.layer_order = false});
    ASSERT_TRUE(load && demand);
    clock.advance(one.passes);
    rig.store->poll();
    rig.files->release();
    rig.fake->hold(true);
    rig.store->poll();
    rig.fake->hold(false);
    EXPECT_TRUE(demand->wait().has_value());
    EXPECT_TRUE(load->wait().has_value());
    const auto& pieces = rig.fake->accepted();
    const auto place = [&](const Object& object) {
      return std::find_if(pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end(),
                          [&](const Piece& piece) { return piece.to.object == &object; });
    };
    EXPECT_EQ(place(patient) < place(other), one.first) << to_string(one.priority);
  }
}

// A block that passes through a slot is copied twice, the second time with its current urgency.
TEST(KvDeadlines, UrgentIsTrueOfTheSecondMoveToo) {
  for (const bool urgent : {false, true}) {
    KvRig rig({.max_in_flight = 1});
    rig.open({4}, 8);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 8));
    for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open({4}, 8);
    const std::size_t before = rig.fake->accepted().size();
    std::vector<std::byte> a(rig.geometry.block().value);
    std::vector<std::byte> b(6 * a.size());
    const MemoryRange promoted(a, kDram);
    const MemoryRange other(b, kDram);
    rig.files->held = true;
    const auto load = rig.store->load(std::span(keys).first(1), whole(promoted),
                                      {.layer_order = false, .priority = Priority::migration});
    ASSERT_TRUE(load.has_value());
    if (urgent) load->urgent(0);
    rig.files->release();
    rig.fake->hold(true);
    // Both engines are busy, and other pieces wait for them.
    std::vector<Transfer> others;
    for (std::uint64_t i = 0; i < 8; ++i) {
      others.push_back(rig.mover->copy(whole(other).part(i * 100, 100_B),
                                       whole(other).part(1000 + i * 100, 100_B),
                                       {.priority = Priority::prefetch}));
    }
    rig.store->poll();
    rig.fake->hold(false);
    EXPECT_TRUE(load->wait().has_value());
    for (const Transfer& copy : others) EXPECT_TRUE(copy.wait().has_value());
    const auto pieces = std::vector(rig.fake->accepted());
    const auto own =
        std::find_if(pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end(),
                     [&](const Piece& p) { return p.to.object == &promoted; });
    const auto last =
        std::find_if(pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end(),
                     [&](const Piece& p) { return p.to.object == &other && p.to.offset == 300; });
    EXPECT_EQ(own < last, urgent);
  }
}

// A caller overwrites the memory of a running load.
TEST(KvOverwritten, MemoryOfALoad_CostsNoBlock) {
  for (const bool layer_order : {false, true}) {
    KvRig rig;
    rig.open({1}, 8);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 3));
    ASSERT_EQ(rig.put(keys)->stored, 3u);
    rig.settle();
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open({1}, 8);
    std::vector<std::byte> bytes(rig.bytes_of(3).value);
    const MemoryRange memory(bytes, kDram);
    rig.files->held = true;
    const auto load =
        rig.store->load(keys, whole(memory), {.layer_order = layer_order, .promote = false});
    rig.store->poll();
    rig.files->release();  // copies; the checksums are compared later
    bytes[5] ^= std::byte{1};
    bytes[rig.bytes_of(2).value] ^= std::byte{1};
    const Status outcome = load->wait();
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(bytes, rig.blocks_of(keys));
    EXPECT_EQ(load->leading(), 3u);
    EXPECT_EQ(rig.store->stats().damaged, 0u);
    EXPECT_EQ(rig.store->match(keys).size(), 3u);
  }
}

// A damaged block is read twice, and dropped.
TEST(KvOverwritten, DamagedBlock_IsReadTwiceAndDropped) {
  for (const bool fails : {false, true}) {
    KvRig rig;
    rig.open({1}, 8);
    const auto keys = kvcache::keys(rig.geometry, tokens(4));
    ASSERT_EQ(rig.put(keys)->stored, 1u);
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open({1}, 8);
    rig.files->read_bytes = 0;
    rig.files->torn_after = 0;
    std::vector<std::byte> bytes(rig.bytes_of(1).value);
    const MemoryRange memory(bytes, kDram);
    rig.files->held = true;
    const auto load =
        rig.store->load(keys, whole(memory), {.layer_order = false, .promote = false});
    rig.store->poll();
    rig.files->release();
    rig.files->fail_chance = fails ? 1 : 0;
    EXPECT_EQ(load->wait().error().code, ErrorCode::io);
    EXPECT_FALSE(load->loaded(0));
    const std::uint64_t once = rig.geometry.block().value;
    EXPECT_EQ(rig.files->read_bytes, once + (fails ? 0 : rig.geometry.fragment().value));
    EXPECT_EQ(rig.store->stats().damaged, 1u);
    EXPECT_EQ(rig.store->match(keys).size(), 0u);
    EXPECT_EQ(rig.store->stats().pinned, 0_B);
  }
}

TEST(KvOverwritten, ExtentsThatOverlap_AreRefused) {
  KvRig rig;
  rig.open({4});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  std::vector<std::byte> bytes(rig.bytes_of(2).value);
  const MemoryRange memory(bytes, kDram);
  const MemoryRange same(bytes, kDram);
  const Bytes block = rig.geometry.block();
  for (const std::uint64_t at : {std::uint64_t{0}, block.value - 1}) {
    const std::vector<Extent> into{{&memory, at, block}, {&same, 0, block}};
    EXPECT_EQ(rig.store->load(keys, into).error().code, ErrorCode::invalid);
  }
  const std::vector<Extent> apart{{&memory, block.value, block}, {&same, 0, block}};
  EXPECT_TRUE(rig.store->load(keys, apart)->wait().has_value());
}

}  // namespace
}  // namespace headrace
