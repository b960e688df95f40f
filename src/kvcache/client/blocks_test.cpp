// SPDX-License-Identifier: Apache-2.0
#include "kvcache/client/blocks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvcache/kvcache_testing.h"

namespace headrace::test {
namespace {

using namespace kvcache;

// A store of 6 blocks in memory, with a client in the same process.
struct SharedRig : KvRig {
  explicit SharedRig(std::size_t folder_blocks = 0, Geometry shape = small_geometry())
      : KvRig({}, false, std::move(shape)) {
    slot = std::max(slot, Bytes{(geometry.block().value + 4095) / 4096 * 4096});
    StoreOptions wanted = options({6}, folder_blocks);
    wanted.shared = true;
    open(std::move(wanted));
    const auto shared = store->shared();
    blocks = SharedBlocks::attach(geometry, shared->memory, shared->index).value();
  }
  // Which blocks the client copies; their bytes are compared.
  std::vector<bool> read(std::span<const Key> keys, Layout layout = Layout::page_first,
                         std::span<const std::size_t> positions = {}, Mover* by = nullptr) {
    std::vector<std::byte> bytes(bytes_of(keys.size()).value);
    const MemoryRange memory(bytes, kDram);
    const Extent into = whole(memory);
    const auto there = blocks->read(keys, {&into, 1}, layout, positions, by).value();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!there[i]) continue;
      const std::size_t at = positions.empty() ? i : positions[i];
      const auto expected = blocks_of({&keys[i], 1});
      for (unsigned layer = 0; layer < geometry.layers; ++layer) {
        const auto from = offset_of(layout, keys.size(), at, layer);
        const auto fragment = geometry.fragment().value;
        EXPECT_TRUE(std::equal(bytes.begin() + from,
                               bytes.begin() + from + static_cast<std::ptrdiff_t>(fragment),
                               expected.begin() + static_cast<std::ptrdiff_t>(layer * fragment)));
      }
    }
    return there;
  }
  std::ptrdiff_t offset_of(Layout layout, std::size_t count, std::size_t at, unsigned layer) const {
    const auto fragment = geometry.fragment().value;
    const std::size_t number =
        layout == Layout::page_first ? at * geometry.layers + layer : layer * count + at;
    return static_cast<std::ptrdiff_t>(number * fragment);
  }

  std::unique_ptr<SharedBlocks> blocks;
};

std::vector<Key> some_keys(std::size_t count) { return keys(small_geometry(), tokens(4 * count)); }

TEST(SharedBlocks, StoredBlocks_AreReadInEachLayout) {
  SharedRig rig;
  const auto wanted = some_keys(3);
  EXPECT_EQ(rig.read(wanted), std::vector<bool>(3, false));
  ASSERT_TRUE(rig.put(wanted).has_value());
  EXPECT_EQ(rig.blocks->contains(wanted).value(), std::vector<bool>(3, true));
  EXPECT_EQ(rig.read(wanted), std::vector<bool>(3, true));
  const std::vector<std::size_t> positions{2, 0, 1};
  EXPECT_EQ(rig.read(wanted, Layout::page_first, positions), std::vector<bool>(3, true));
  EXPECT_EQ(rig.read(wanted, Layout::layer_first, positions), std::vector<bool>(3, true));
}

// Three blocks are more than 8 MiB.
Geometry large_geometry() {
  Geometry large = small_geometry();
  large.head_dim *= 1000;
  return large;
}

TEST(SharedBlocks, LargeLoad_IsCopiedByTheMover) {
  SharedRig rig(0, large_geometry());
  const auto wanted = some_keys(4);
  ASSERT_TRUE(rig.put(std::span(wanted).first(3)).has_value());
  const auto copied = [&] { return rig.mover->stats().transfers; };
  const auto before = copied();
  const std::vector<bool> there{true, true, true, false};
  EXPECT_EQ(rig.read(wanted), there);
  EXPECT_EQ(rig.read(std::span(wanted).first(2), Layout::layer_first, {}, rig.mover.get()),
            std::vector<bool>(2, true));
  EXPECT_EQ(copied(), before);  // without a Mover, and a small one
  EXPECT_EQ(rig.read(wanted, Layout::layer_first, {}, rig.mover.get()), there);
  EXPECT_EQ(copied(), before + 9);  // three layers of three blocks
}

// A piece costs the Mover more time than copying 4 KiB.
TEST(SharedBlocks, LargeLoadInSmallPieces_IsCopiedByItsThread) {
  Geometry shape = large_geometry();
  shape.layers *= 256;
  shape.head_dim /= 256;
  SharedRig rig(0, shape);
  const auto wanted = some_keys(3);
  ASSERT_TRUE(rig.put(wanted).has_value());
  const auto before = rig.mover->stats().transfers;
  const std::vector<bool> there(3, true);
  EXPECT_EQ(rig.read(wanted, Layout::layer_first, {}, rig.mover.get()), there);
  EXPECT_EQ(rig.mover->stats().transfers, before);
  EXPECT_EQ(rig.read(wanted, Layout::page_first, {}, rig.mover.get()), there);
  EXPECT_GT(rig.mover->stats().transfers, before);
}

TEST(SharedBlocks, BlocksOfOneDestination_AreInvalid) {
  SharedRig rig;
  const auto wanted = some_keys(2);
  ASSERT_TRUE(rig.put(wanted).has_value());
  std::vector<std::byte> bytes(rig.bytes_of(2).value);
  const MemoryRange memory(bytes, kDram);
  const Extent into = whole(memory);
  const std::size_t positions[] = {1, 1};
  EXPECT_EQ(rig.blocks->read(wanted, {&into, 1}, Layout::page_first, positions).error().code,
            ErrorCode::invalid);
  const std::vector<Extent> twice(2, into.part(0, rig.bytes_of(1)));
  EXPECT_EQ(rig.blocks->read(wanted, twice, Layout::page_first, {}).error().code,
            ErrorCode::invalid);
}

TEST(SharedBlocks, LargeLoadInACallback_IsCopiedByItsThread) {
  SharedRig rig(0, large_geometry());
  const auto wanted = some_keys(3);
  ASSERT_TRUE(rig.put(wanted).has_value());
  std::vector<bool> there;
  rig.mover->copy(Extent{}, Extent{}).on_done([&](const auto&) {
    there = rig.read(wanted, Layout::page_first, {}, rig.mover.get());
  });
  EXPECT_EQ(there, std::vector<bool>(3, true));
}

TEST(SharedBlocks, BlockRemovedWhileTheMoverCopies_IsNotRead) {
  SharedRig rig(0, large_geometry());
  const auto wanted = some_keys(3);
  ASSERT_TRUE(rig.put(wanted).has_value());
  Result<Route> route = fail(ErrorCode::absent, "no route");
  const auto remove = [&](const Machine& machine, const RouteRequest& request) -> Result<Route> {
    EXPECT_TRUE(rig.store->remove({&wanted[1], 1}).has_value());
    return route ? place::one(machine, request) : route;
  };
  Mover removing(rig.machine, rig.backends, {.route = remove});
  std::vector<std::byte> bytes(rig.bytes_of(3).value);
  const MemoryRange memory(bytes, kDram);
  const Extent into = whole(memory);
  const auto refused =
      rig.blocks->read(wanted, {&into, 1}, Layout::page_first, {}, &removing).error();
  EXPECT_EQ(refused.code, ErrorCode::absent);
  route = Route{};
  ASSERT_TRUE(rig.put(wanted).has_value());
  EXPECT_EQ(rig.read(wanted, Layout::page_first, {}, &removing),
            (std::vector<bool>{true, false, true}));
}

TEST(SharedBlocks, RemovedBlock_IsNotFound) {
  SharedRig rig(20);
  const auto wanted = some_keys(3);
  ASSERT_TRUE(rig.put(wanted).has_value());
  const Match pinned = rig.store->match(wanted);
  ASSERT_EQ(rig.store->remove(std::span(wanted).first(2)).value(), 2U);
  EXPECT_EQ(rig.blocks->contains(wanted).value(), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(rig.read(wanted), (std::vector<bool>{false, false, true}));
}

TEST(SharedBlocks, BlockInTheFolder_IsFoundButNotRead) {
  SharedRig rig(20);
  const auto wanted = some_keys(12);
  for (const Key& key : wanted) ASSERT_TRUE(rig.put({&key, 1}).has_value());
  rig.settle();
  EXPECT_EQ(rig.blocks->contains(wanted).value(), std::vector<bool>(12, true));
  const auto there = rig.read(wanted);
  EXPECT_GT(std::ranges::count(there, false), 5);
  EXPECT_GT(std::ranges::count(there, true), 2);
}

TEST(SharedBlocks, StoreWithoutMemory_ShowsWhatItHas) {
  KvRig rig;
  StoreOptions wanted = rig.options({}, 20);
  wanted.shared = true;
  rig.open(std::move(wanted));
  const auto some = some_keys(2);
  ASSERT_TRUE(rig.put(some).has_value());
  const auto files = rig.store->shared();
  EXPECT_FALSE(files->memory.has_value());
  const auto blocks = SharedBlocks::attach(rig.geometry, {}, files->index).value();
  EXPECT_EQ(blocks->contains(some).value(), std::vector<bool>(2, true));
}

TEST(SharedBlocks, BlocksThatAnEarlierProcessWrote_AreFound) {
  KvRig rig;
  StoreOptions wanted = rig.options({6}, 20);
  wanted.shared = true;
  rig.open(wanted);
  const auto some = some_keys(2);
  ASSERT_TRUE(rig.put(some).has_value());
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open(wanted);
  const auto files = rig.store->shared();
  const auto blocks = SharedBlocks::attach(rig.geometry, files->memory, files->index).value();
  EXPECT_EQ(blocks->contains(some).value(), std::vector<bool>(2, true));
}

TEST(SharedBlocks, ClosedStore_IsCancelled) {
  SharedRig rig;
  const auto some = some_keys(2);
  ASSERT_TRUE(rig.put(some).has_value());
  ASSERT_TRUE(rig.store->close().has_value());
  EXPECT_EQ(rig.blocks->contains(some).error().code, ErrorCode::cancelled);
}

TEST(SharedBlocks, OtherGeometry_IsRefused) {
  SharedRig rig;
  Geometry other = small_geometry();
  other.layers = 2;
  const auto files = rig.store->shared();
  EXPECT_EQ(SharedBlocks::attach(other, files->memory, files->index).error().code,
            ErrorCode::invalid);
  EXPECT_EQ(SharedBlocks::attach(rig.geometry, {}, files->index).error().code, ErrorCode::invalid);
}

TEST(SharedBlocks, StoreThatIsNotShared_HasNoFiles) {
  KvRig rig;
  rig.open({6});
  EXPECT_FALSE(rig.store->shared().has_value());
}

TEST(SharedBlocks, ChildOfFork_IsRefused) {
  SharedRig rig;
  const auto some = some_keys(2);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto found = rig.blocks->contains(some);
    const bool refused = !found && found.error().code == ErrorCode::unsupported;
    rig.blocks.reset();  // leaves mappings that it does not have
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SharedBlocks, RandomOperations_ShowWhatTheStoreHas) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SharedRig rig(random.chance(0.7) ? 8 : 0);
    const auto all = some_keys(16);
    for (unsigned step = 0; step < 80; ++step) {
      const std::size_t first = random.below(all.size());
      const std::size_t count = 1 + random.below(std::min<std::size_t>(3, all.size() - first));
      const auto some = std::span(all).subspan(first, count);
      if (random.chance(0.05)) {
        ASSERT_TRUE(rig.store->clear().has_value());
      } else if (random.chance(0.2)) {
        ASSERT_TRUE(rig.store->remove(some).has_value());
      } else if (random.chance(0.3)) {
        const Match found = rig.store->pin(some);
        rig.files->torn_after = random.chance(0.1) ? 0 : UINT64_MAX;  // a damaged block is dropped
        std::vector<std::byte> bytes(rig.bytes_of(found.size()).value);
        const MemoryRange memory(bytes, kDram);
        if (found.size() > 0) {
          static_cast<void>(rig.store->load(found.keys(), whole(memory))->wait());
        }
        rig.files->torn_after = UINT64_MAX;
      } else {
        ASSERT_TRUE(rig.put(some).has_value());
      }
      rig.poll();
      ASSERT_EQ(rig.blocks->contains(all).value(), rig.store->contains(all));
      const auto there = rig.read(all);
      const Match found = rig.store->pin(all);
      for (std::size_t i = 0, n = 0; i < all.size(); ++i) {
        const bool has = n < found.size() && found.keys()[n] == all[i];
        ASSERT_EQ(there[i], has && found.tiers()[n] == 0) << i;
        n += has ? 1 : 0;
      }
    }
  }
}

TEST(CopyStaged, MemoryThatDoesNotFit_IsRefused) {
  std::vector<std::byte> bytes(small_geometry().block().value);
  const MemoryRange memory(bytes, kDram);
  const Extent user = whole(memory);
  const Staging two{.bytes = bytes, .which = {true, true}};
  EXPECT_EQ(
      copy_staged(small_geometry(), two, Direction::to_user, {&user, 1}, Layout::page_first, {})
          .error()
          .code,
      ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::test
