// SPDX-License-Identifier: Apache-2.0
// The order in which layers of several loads are read.
#include "kvcache/state/load_queue.h"

#include <algorithm>
#include <array>
#include <list>
#include <thread>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

// Loads of one block each from memory read two layers at a time. Records the order of layers.
struct KvTurns : testing::Test {
  void SetUp() override {
    auto options = rig.options({4});
    options.load_ahead = 1_B;
    rig.open(std::move(options));
    key = kvcache::keys(rig.geometry, tokens(4)).front();
    ASSERT_TRUE(rig.put({&key, 1}).has_value());
    before = rig.fake->accepted().size();
    rig.fake->hold(true);
  }
  kvcache::Load load(const kvcache::LoadOptions& options = {}) {
    bytes.emplace_back(rig.geometry.block().value);
    into.push_back(std::make_unique<MemoryRange>(bytes.back(), kDram));
    return rig.store->load({&key, 1}, whole(*into.back()), options).value();
  }
  // "A0 A1 B0", where A is the first load.
  std::string order() {
    std::string result;
    const auto pieces = std::vector(rig.fake->accepted());
    for (std::size_t i = before; i < pieces.size(); ++i) {
      for (std::size_t n = 0; n < into.size(); ++n) {
        if (pieces[i].to.object != into[n].get()) continue;
        const std::uint64_t layer = pieces[i].to.offset / rig.geometry.fragment().value;
        result += std::string(1, static_cast<char>('A' + n)) + std::to_string(layer) + " ";
      }
    }
    return result;
  }

  KvRig rig{{.max_in_flight = 1}};
  kvcache::Key key;
  std::size_t before = 0;
  std::list<std::vector<std::byte>> bytes;
  std::vector<std::unique_ptr<MemoryRange>> into;
};

// Nothing hides the first layer: unless it is small, it has the device alone.
TEST_F(KvTurns, TheFirstLayerIsReadBeforeOthersBegin) {
  const auto begun = [&, none = rig.mover->stats().transfers] {
    return rig.mover->stats().transfers - none;
  };
  const kvcache::Load first = load();
  EXPECT_EQ(begun(), 1u);
  rig.fake->finish(1);
  rig.store->poll();
  EXPECT_EQ(begun(), 3u);
  rig.fake->hold(false);
  EXPECT_TRUE(first.wait().has_value());
  rig.open({4});  // 8 MiB at a time
  ASSERT_TRUE(rig.put({&key, 1}).has_value());
  rig.fake->hold(true);
  const std::uint64_t before_small = begun();
  const kvcache::Load small = load();
  EXPECT_EQ(begun() - before_small, 3u);
  rig.fake->hold(false);
  EXPECT_TRUE(small.wait().has_value());
}

TEST_F(KvTurns, LowerLayersOfALaterLoadGoFirst) {
  const kvcache::Load first = load();
  const kvcache::Load second = load();
  rig.fake->hold(false);
  EXPECT_TRUE(first.wait().has_value());
  EXPECT_TRUE(second.wait().has_value());
  EXPECT_EQ(order(), "A0 B0 A1 B1 A2 B2 ");
  for (const auto& got : bytes) EXPECT_EQ(got, rig.blocks_of({&key, 1}));
}

TEST_F(KvTurns, NoLoadWaitsForMoreThanSevenLayersOfOthers) {
  const kvcache::Load first = load();
  std::vector<kvcache::Load> others;
  for (int i = 0; i < 12; ++i) others.push_back(load({.layer_order = false}));
  rig.fake->hold(false);
  EXPECT_TRUE(first.wait().has_value());
  for (const kvcache::Load& other : others) EXPECT_TRUE(other.wait().has_value());
  EXPECT_EQ(order(), "A0 B0 C0 D0 E0 F0 G0 H0 A1 I0 J0 K0 L0 M0 A2 ");
}

TEST_F(KvTurns, WhatIsCancelledInLineEndsBeforeItsTurn) {
  const kvcache::Load first = load();
  const kvcache::Load second = load();
  const kvcache::Load third = load();
  third.cancel();
  rig.store->poll();
  EXPECT_TRUE(third.done());
  EXPECT_FALSE(first.done());
  rig.fake->hold(false);
  EXPECT_TRUE(first.wait().has_value());
  EXPECT_TRUE(second.wait().has_value());
  EXPECT_EQ(third.wait().error().code, ErrorCode::cancelled);
  EXPECT_EQ(order(), "A0 B0 A1 B1 A2 B2 ");
}

}  // namespace
}  // namespace headrace
