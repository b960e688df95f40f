// SPDX-License-Identifier: Apache-2.0
#include "headrace/kvcache/store.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/explore/explore.h"
#include "tests/support/fake_backend.h"
#include "tests/support/machines.h"

namespace headrace::explore {
namespace {

using namespace test;
using kvcache::Key;

// Two tiers of memory, moved by a thread of the fake backend; a worker of the store.
class Blocks {
 public:
  Blocks(Trial& trial, std::size_t fast, std::size_t slow) : trial_(trial) {
    FakeOptions fake{.engines = {kCpuA, kCpuB}, .seed = 1 + trial.below(1000)};
    fake.own_thread = true;
    fake.log = false;
    fake.reorder = trial.below(2) == 0;
    backends_.add(std::make_unique<FakeBackend>(std::move(fake)));
    mover_.emplace(machine_, backends_, MoverOptions{.route = place::one});
    kvcache::StoreOptions options{.geometry = geometry_, .workers = 1};
    for (const std::size_t blocks : {fast, slow}) {
      options.tiers.push_back({.budget = 4_KiB * blocks, .memory = Placement::on(kDram)});
      options.tiers.back().memory.pages = PageSize::base;
    }
    auto made = kvcache::Store::open(*mover_, std::move(options));
    trial.require(made.has_value(), "the store opens");
    store = std::move(*made);
    std::vector<std::uint32_t> tokens(16);
    keys = kvcache::keys(geometry_, tokens);
  }

  std::span<const Key> some(std::size_t first, std::size_t count) const {
    return std::span(keys).subspan(first, count);
  }
  void keep(std::span<const Key> wanted) {
    std::vector<std::byte> bytes = bytes_of(wanted);
    const MemoryRange memory(bytes, kDram);
    const auto stored = store->store(wanted, whole(memory));
    trial_.require(stored.has_value() && stored->wait().has_value(), "a store ends");
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

 public:
  std::unique_ptr<kvcache::Store> store;
};

TEST(ExploreKvStore, LoadsBesideStores_HaveTheirBytes) {
  explore(
      [](Trial& trial) {
        Blocks rig(trial, 4, 4);
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
        Blocks rig(trial, 2, 8);
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
        Blocks rig(trial, 4, 4);
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

}  // namespace
}  // namespace headrace::explore
