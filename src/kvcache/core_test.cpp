// SPDX-License-Identifier: Apache-2.0
// Opening and closing.
#include "kvcache/core.h"

#include <thread>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvOpen, RefusesTiersThatMakeNoStore) {
  KvRig rig;
  const auto code = [&](kvcache::StoreOptions options) {
    const auto made = kvcache::Store::open(*rig.mover, std::move(options));
    return made ? std::optional<ErrorCode>{} : made.error().code;
  };
  EXPECT_EQ(code(rig.options({})), ErrorCode::invalid);
  auto first = rig.options({4}, 4);
  std::swap(first.tiers[0], first.tiers[1]);
  EXPECT_EQ(code(first), ErrorCode::invalid);
  auto small = rig.options({4});
  small.tiers[0].budget = rig.slot - 1_B;
  EXPECT_EQ(code(small), ErrorCode::invalid);
  auto none = rig.options({4});
  none.geometry.layers = 0;
  EXPECT_EQ(code(none), ErrorCode::invalid);
  EXPECT_EQ(code(rig.options({1, 1, 1, 1, 1, 1, 1})), ErrorCode::invalid);
  auto file = rig.options({4});
  file.tiers[0].memory = Placement::on(NodeKind::storage);
  EXPECT_EQ(code(file), ErrorCode::invalid);
  auto cut = rig.options({4}, 4);
  cut.tiers[1].folder = rig.folder.path / std::string("new\0x", 5);
  EXPECT_EQ(code(cut), ErrorCode::invalid);
  EXPECT_FALSE(std::filesystem::exists(rig.folder.path / "new"));
  EXPECT_FALSE(code(rig.options({4}, 4)).has_value());
}

// Threads store, load and match the same blocks, with a worker and a Mover that has a poller.
TEST(KvThreads, GetTheRightBytesOrAnError) {
  KvRig rig({.own_thread = true}, true);
  rig.worker = true;
  rig.open({6, 4}, 12);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 32));
  std::atomic<std::size_t> served{0};
  const auto run = [&](std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 60; ++i) {
      const std::size_t first = random() % 28;
      const auto some = std::span(keys).subspan(first, 1 + random() % 4);
      if (random.chance(0.5)) {
        EXPECT_TRUE(rig.put(some).has_value());
      }
      const kvcache::Match match = rig.store->match(some);
      if (match.size() == 0) continue;
      if (random.chance(0.2)) {  // perhaps before it begins
        std::vector<std::byte> bytes(match.size() * rig.geometry.block().value);
        const MemoryRange memory(bytes, kDram);
        const auto load = rig.store->load(match.keys(), whole(memory));
        ASSERT_TRUE(load.has_value());
        load->cancel();
        const Status outcome = load->wait();
        EXPECT_TRUE(outcome || outcome.error().code == ErrorCode::cancelled);
        continue;
      }
      const Status got = rig.get(match.keys(), {.layer_order = random.chance(0.5)});
      EXPECT_TRUE(got.has_value()) << got.error().message;
      served += match.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) threads.emplace_back(run, seed);
  }
  EXPECT_GT(served.load(), 0u);
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.pinned, 0_B);
  EXPECT_EQ(stats.damaged, 0u);
}

}  // namespace
}  // namespace headrace
