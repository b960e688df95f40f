// SPDX-License-Identifier: Apache-2.0
#include "headrace/kvcache/store.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/explore/explore.h"
#include "tests/support/fake_backend.h"
#include "tests/support/folder.h"
#include "tests/support/machines.h"

namespace headrace::explore {
namespace {

using namespace test;
using kvcache::Key;

// Blocks of each tier.
struct Sizes {
  std::vector<std::size_t> memory;
  std::size_t folder = 0;
};

// Tiers moved by threads of fake backends, one for the disk; a worker of the store.
class Blocks {
 public:
  Blocks(Trial& trial, const Sizes& sizes, const std::filesystem::path& folder = {})
      : trial_(trial) {
    FakeOptions fake{.engines = {kCpuA, kCpuB}, .seed = 1 + trial.below(1000)};
    fake.own_thread = true;
    fake.log = false;
    fake.reorder = trial.below(2) == 0;
    if (sizes.folder > 0) {
      FakeOptions disk = fake;
      disk.engines = {kSsd};
      disk.files = true;
      backends_.add(std::make_unique<FakeBackend>(std::move(disk)));
    }
    backends_.add(std::make_unique<FakeBackend>(std::move(fake)));
    mover_.emplace(machine_, backends_, MoverOptions{.route = place::one});
    options_ = {.geometry = geometry_, .workers = 1};
    for (const std::size_t blocks : sizes.memory) {
      options_.tiers.push_back({.budget = 4_KiB * blocks, .memory = Placement::on(kDram)});
      options_.tiers.back().memory.pages = PageSize::base;
    }
    if (sizes.folder > 0) {
      options_.tiers.push_back({.budget = 4_KiB * sizes.folder, .folder = folder});
    }
    open();
    std::vector<std::uint32_t> tokens(16);
    keys = kvcache::keys(geometry_, tokens);
  }

  void open() {
    auto made = kvcache::Store::open(*mover_, options_);
    trial_.require(made.has_value(), "the store opens");
    store = std::move(*made);
  }
  std::span<const Key> some(std::size_t first, std::size_t count) const {
    return std::span(keys).subspan(first, count);
  }
  kvcache::StoredCounts keep(std::span<const Key> wanted) {
    std::vector<std::byte> bytes = bytes_of(wanted);
    const MemoryRange memory(bytes, kDram);
    const auto stored = store->store(wanted, whole(memory));
    const auto counts = stored ? stored->wait() : Unexpected(stored.error());
    trial_.require(counts.has_value(), "a store ends");
    trial_.require(counts->failed == 0, "a copy succeeds");
    return *counts;
  }
  // A load either lacks blocks, and returns false, or has their bytes.
  bool read(std::span<const Key> wanted) {
    std::vector<std::byte> bytes(geometry_.block().value * wanted.size());
    const MemoryRange memory(bytes, kDram);
    const auto load = store->load(wanted, whole(memory), {});
    if (!load) {
      trial_.require(load.error().code == ErrorCode::absent, "a load that fails lacks blocks");
      return false;
    }
    trial_.require(load->wait().has_value(), "a load that was started ends");
    trial_.require(bytes == bytes_of(wanted), "a load has the bytes of its blocks");
    return true;
  }

  std::vector<Key> keys;

 private:
  std::vector<std::byte> bytes_of(std::span<const Key> wanted) const {
    std::vector<std::byte> bytes;
    for (const Key& key : wanted) {
      bytes.resize(bytes.size() + geometry_.block().value, static_cast<std::byte>(key.low));
    }
    return bytes;
  }

  Trial& trial_;
  const kvcache::Geometry geometry_{.model = "tiny",
                                    .layers = 2,
                                    .kv_heads = 1,
                                    .head_dim = 16,
                                    .element_bytes = 1,
                                    .block_tokens = 4};
  const Machine machine_ = small_machine();
  Backends backends_;
  std::optional<Mover> mover_;
  kvcache::StoreOptions options_;

 public:
  std::unique_ptr<kvcache::Store> store;
};

TEST(ExploreKvStore, LoadsBesideStores_HaveTheirBytes) {
  explore(
      [](Trial& trial) {
        Blocks rig(trial, {.memory = {4, 4}});
        rig.keep(rig.some(0, 1));
        trial.together({[&] {
                          rig.keep(rig.some(0, 2));
                          trial.require(rig.read(rig.some(0, 1)), "a stored block is there");
                        },
                        [&] { rig.read(rig.some(0, 2)); }, [&] { rig.keep(rig.some(1, 2)); }});
        trial.require(rig.read(rig.some(0, 3)), "stored blocks are there");
        rig.store.reset();
      },
      0.5);
}

// Four blocks in a tier of two: the others are demoted while they are read.
TEST(ExploreKvStore, DemotionBesideLoads_LosesNothing) {
  explore(
      [](Trial& trial) {
        Blocks rig(trial, {.memory = {2, 8}});
        rig.keep(rig.some(0, 2));
        trial.together({[&] { rig.read(rig.some(0, 2)); }, [&] { rig.keep(rig.some(2, 2)); },
                        [&] {
                          rig.read(rig.some(0, 1));
                          const auto match = rig.store->match(rig.keys);
                          trial.require(match.size() <= 4, "a match has what was stored");
                        }});
        rig.store.reset();
      },
      0.5);
}

TEST(ExploreKvStore, RemovalBesideLoadsAndStores_LeavesNoOldBlock) {
  explore(
      [](Trial& trial) {
        Blocks rig(trial, {.memory = {4, 4}});
        rig.keep(rig.some(0, 2));
        trial.together({[&] { rig.read(rig.some(0, 2)); },
                        [&] { (void)rig.store->remove(rig.some(0, 2)); },
                        [&] {
                          rig.keep(rig.some(1, 1));
                          (void)rig.store->flush();
                        }});
        (void)rig.store->remove(rig.keys);
        trial.require(rig.store->match(rig.keys).size() == 0, "nothing is left");
        rig.store.reset();
      },
      0.5);
}

// A scenario with a store in an empty folder.
void explore_folder(const std::function<void(Trial&, const std::filesystem::path&)>& scenario,
                    double share) {
  const TestFolder folder;
  explore(
      [&](Trial& trial) {
        const auto path = folder.at("store");
        std::filesystem::remove_all(path);
        scenario(trial, path);
      },
      share);
}

// Blocks go to the disk while they are read, and come back.
TEST(ExploreKvFolder, DemotionBesideLoads_LosesNothing) {
  explore_folder(
      [](Trial& trial, const std::filesystem::path& path) {
        Blocks rig(trial, {.memory = {2}, .folder = 8}, path);
        rig.keep(rig.some(0, 2));
        trial.together({[&] { rig.read(rig.some(0, 2)); }, [&] { rig.keep(rig.some(2, 2)); },
                        [&] { rig.read(rig.some(0, 1)); }});
        trial.require(rig.store->stats().damaged == 0, "no block is damaged");
        rig.store.reset();
      },
      0.5);
}

// Two loads of a block share a read, or not, while it is removed and written again.
TEST(ExploreKvFolder, LoadsBesideRemoval_HaveTheBytesOfTheirBlocks) {
  explore_folder(
      [](Trial& trial, const std::filesystem::path& path) {
        Blocks rig(trial, {.memory = {}, .folder = 3}, path);
        rig.keep(rig.some(0, 2));
        trial.together({[&] { rig.read(rig.some(0, 2)); }, [&] { rig.read(rig.some(0, 1)); },
                        [&] {
                          (void)rig.store->remove(rig.some(0, 1));
                          rig.keep(rig.some(2, 1));
                          rig.keep(rig.some(0, 1));
                        }});
        trial.require(rig.store->stats().damaged == 0, "no block is damaged");
        rig.store.reset();
      },
      0.5);
}

// Each block that a flush covered is there for the next store, and no removed one.
TEST(ExploreKvFolder, FlushBesideStoresAndRemovals_IsWhatTheNextStoreFinds) {
  explore_folder(
      [](Trial& trial, const std::filesystem::path& path) {
        Blocks rig(trial, {.memory = {3}, .folder = 8}, path);
        rig.keep(rig.some(0, 2));
        bool flushed = false;
        trial.together({[&] {
                          const bool stored = rig.keep(rig.some(2, 1)).stored == 1;
                          flushed = rig.store->flush().has_value() && stored;
                        },
                        [&] { rig.keep(rig.some(3, 1)); },
                        [&] { (void)rig.store->remove(rig.some(0, 1)); }});
        trial.require(rig.store->flush().has_value(), "a flush ends well");
        rig.store.reset();
        rig.open();
        trial.require(!rig.read(rig.some(0, 1)), "a removed block does not come back");
        trial.require(rig.read(rig.some(1, 1)), "a stored block is found");
        trial.require(!flushed || rig.read(rig.some(2, 1)), "a flushed block is found");
        rig.store.reset();
      },
      0.5);
}

// A store that closes beside its loads ends each of them, with all bytes or cancelled. close() naps
// between looks whether the copies have ended.
TEST(ExploreKvFolder, CloseBesideLoadsAndStores_EndsThem) {
  explore_folder(
      [](Trial& trial, const std::filesystem::path& path) {
        Blocks rig(trial, {.memory = {1}, .folder = 4}, path);
        trial.allow_timeouts();
        rig.keep(rig.some(0, 2));
        const auto ends = [&](const auto& outcome) {
          trial.require(outcome || outcome.error().code == ErrorCode::cancelled ||
                            outcome.error().code == ErrorCode::absent,
                        "it ends well, cancelled, or without the block");
        };
        std::array<std::byte, 512> bytes{};
        const MemoryRange memory(bytes, kDram);
        trial.together(
            {[&] {
               const auto load = rig.store->load(rig.some(0, 2), whole(memory), {});
               load ? ends(load->wait()) : ends(load);
             },
             [&] {
               std::array<std::byte, 256> own{};
               const MemoryRange from(own, kDram);
               const auto stored = rig.store->store(rig.some(2, 1), whole(from));
               stored ? ends(stored->wait()) : ends(stored);
             },
             [&] { trial.require(rig.store->close().has_value(), "the store closes"); }});
        rig.store.reset();
      },
      0.5);
}

}  // namespace
}  // namespace headrace::explore
