// SPDX-License-Identifier: Apache-2.0
// Blocks between the memory of a GPU and tiers, and tiers in the memory of a GPU.
#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

// Tiers from fast to slow, above a folder.
using Tiers = std::vector<std::pair<NodeId, std::size_t>>;

// Fragments of whole pages lie layer after layer in the memory that they pass through.
TEST(KvGpu, BlocksOfWholePagesComeFromAFolderInEachOrder) {
  kvcache::Geometry geometry = small_geometry();
  geometry.kv_heads = 2;
  geometry.head_dim = 256;
  geometry.block_tokens = 4;
  ASSERT_EQ(geometry.fragment(), 4_KiB);
  GpuRig rig("devices=2", geometry, geometry.block());
  rig.open({{kDram, 2}}, 16);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 6));
  for (const kvcache::Key& key : keys) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  for (const bool layers : {true, false}) {
    for (const bool promote : {false, true}) {
      const Status got = rig.get(keys, {.layer_order = layers, .promote = promote});
      EXPECT_TRUE(got.has_value()) << got.error().message;
    }
  }
  EXPECT_EQ(rig.store->stats().damaged, 0u);
}

TEST(KvGpu, BlocksPassThroughHbmWhereCpusHaveNoDram) {
  GpuRig rig;
  for (Node& node : rig.gpu.machine.nodes) {
    if (node.kind == NodeKind::dram) node.kind = NodeKind::hbm;
  }
  rig.open({{kGpu, 2}}, 16);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 6));
  ASSERT_EQ(rig.put(keys)->stored, 6u);
  ASSERT_TRUE(rig.store->flush().has_value());
  const Status got = rig.get(keys);
  EXPECT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(rig.store->stats().failed, 0u) << rig.store->stats().last_error;
}

TEST(KvGpu, ATornBlockNeverGetsThere) {
  for (const bool promote : {true, false}) {
    GpuRig rig;
    rig.open({{kDram, 4}}, 8);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
    ASSERT_EQ(rig.put(keys)->stored, 4u);
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open({{kDram, 4}}, 8);
    {
      std::fstream file(rig.folder.path / "blocks",
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(3);
      file << "torn";
    }
    std::size_t torn = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Device into(rig.gpu.machine, rig.bytes_of(1));
      const auto load = rig.store->load({&keys[i], 1}, whole(into.range), {.promote = promote});
      ASSERT_TRUE(load.has_value());
      const Status outcome = load->wait();
      if (outcome) {
        EXPECT_EQ(read_gpu(into.range, 0, rig.bytes_of(1).value), rig.blocks_of({&keys[i], 1}));
        continue;
      }
      ++torn;
      EXPECT_EQ(outcome.error().code, ErrorCode::io);
      EXPECT_EQ(read_gpu(into.range, 0, 1), std::vector<std::byte>(1));
    }
    EXPECT_EQ(torn, 1u);
    EXPECT_EQ(rig.store->stats().damaged, 1u);
  }
}

TEST(KvGpu, BlocksOfALostOneComeFromASlowerTier) {
  GpuRig rig("devices=1,lost_after=40");
  rig.open({{kGpu, 4}}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  auto bytes = rig.blocks_of(keys);
  const MemoryRange from(bytes, kDram);
  ASSERT_EQ(rig.store->store(keys, whole(from))->wait()->stored, 4u);
  ASSERT_TRUE(rig.store->flush().has_value());
  std::vector<std::byte> got(rig.bytes_of(1).value);
  const MemoryRange into(got, kDram);
  const auto load = [&](const kvcache::Key& key) {
    return rig.store->load({&key, 1}, whole(into))->wait();
  };
  Status outcome;
  for (int i = 0; i < 100 && outcome; ++i) outcome = load(keys[0]);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::io);
  for (const kvcache::Key& key : keys) {
    if (&key != &keys[0]) {
      EXPECT_FALSE(load(key).has_value());
    }
    const Status again = load(key);
    EXPECT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(got, rig.blocks_of({&key, 1}));
  }
  EXPECT_EQ(rig.store->stats().damaged, 4u);
}

// Random operations between a GPU, memory and SSD, while calls and copies of the driver fail.
// Checks that the store never breaks its promises.
class KvGpuModel {
 public:
  KvGpuModel(std::uint64_t seed, bool failing, kvcache::Geometry geometry)
      : random_(seed),
        failing_(failing),
        rig_(failing ? fmt::format("devices=2,fail=0.01,seed={}", seed) : "devices=2",
             std::move(geometry)),
        keys_(kvcache::keys(rig_.geometry, tokens(4 * 16))) {
    for (unsigned i = 0; i < 4; ++i) {
      on_gpu_.push_back(memory());
      on_host_.push_back(std::make_unique<Host>(most()));
    }
    Tiers tiers;
    if (random_.chance(0.7)) tiers.emplace_back(kGpu, 1 + random_.below(8));
    if (tiers.empty() || random_.chance(0.7)) tiers.emplace_back(kDram, 1 + random_.below(4));
    const std::size_t folder = random_.below(20);
    for (int tries = 0; rig_.store == nullptr && tries < 100; ++tries) {
      auto made = kvcache::Store::open(rig_.mover, rig_.options(tiers, folder));
      if (made) rig_.store = std::move(*made);
    }
    EXPECT_NE(rig_.store, nullptr);
  }

  void step() {
    switch (random_.below(10)) {
      case 0:
      case 1:
      case 2: store(); break;
      case 3:
      case 4:
      case 5: load(some_keys()); break;
      case 6:
      case 7:
        for (int i = 0; i < 3; ++i) load(last_);  // used again, so it may be promoted
        break;
      case 8: held_ = rig_.store->match(some_keys()); break;
      default: (void)rig_.store->flush();
    }
    for (const kvcache::TierStats& tier : rig_.store->stats().tiers)
      EXPECT_LE(tier.used, tier.budget);
    if (!failing_) {
      EXPECT_EQ(rig_.store->match(held_.keys()).size(), held_.size());
    }
  }

  void finish() {
    held_ = {};
    (void)rig_.store->flush();
    const kvcache::StoreStats stats = rig_.store->stats();
    EXPECT_EQ(stats.pinned, 0_B);
    EXPECT_EQ(stats.in_flight, 0_B);
    if (!failing_) {
      EXPECT_EQ(stats.damaged, 0u);
      EXPECT_EQ(stats.failed, 0u) << stats.last_error;
    }
  }
  std::uint64_t loaded() const { return loaded_; }
  // Blocks that came to a tier in the GPU from a slower tier.
  std::uint64_t risen() const {
    const kvcache::TierStats first = rig_.store->stats().tiers[0];
    return first.name == "gpu" ? first.arrived : 0;
  }

 private:
  static constexpr std::size_t kMost = 5;
  struct Host {
    explicit Host(Bytes size) : bytes(size.value), range(bytes, kDram) {}
    std::vector<std::byte> bytes;
    const MemoryRange range;
  };

  Bytes most() const { return rig_.bytes_of(rig_.geometry.any_size ? 5 * kMost : kMost); }
  std::unique_ptr<Buffer> memory() {
    for (;;) {
      auto made = allocate(rig_.gpu.machine, most(), Placement::on(kGpu));
      if (made) return std::move(*made);
      EXPECT_TRUE(failing_);
    }
  }
  std::vector<kvcache::Key> some_keys() {
    const auto first = random_.below(16);
    const auto count = std::min(1 + random_.below(kMost), 16 - first);
    const auto all = std::span(keys_).subspan(first, count);
    return {all.begin(), all.end()};
  }
  void put_bytes(const Object& object, std::span<const std::byte> bytes) {
    if (object.memory() != nullptr) {
      std::copy(bytes.begin(), bytes.end(), object.memory());
      return;
    }
    while (!copy_with_gpu(*object.device_address(), const_cast<std::byte*>(bytes.data()),
                          bytes.size(), true)) {
    }
  }
  std::vector<std::byte> bytes_in(const Object& object, std::size_t count) {
    std::vector<std::byte> bytes(count);
    if (object.memory() != nullptr) {
      std::copy_n(object.memory(), count, bytes.begin());
      return bytes;
    }
    while (!copy_with_gpu(*object.device_address(), bytes.data(), count, false)) {
    }
    return bytes;
  }
  const Object& some_memory() {
    const auto index = random_.below(4);
    if (random_.chance(0.7)) return *on_gpu_[index];
    return on_host_[index]->range;
  }
  std::optional<std::uint64_t> some_stream(const Object& object) {
    if (object.memory() != nullptr || random_.chance(0.5)) return std::nullopt;
    return 0;
  }
  void store() {
    const auto keys = some_keys();
    const Object& from = some_memory();
    put_bytes(from, rig_.blocks_of(keys));
    const auto stored =
        rig_.store->store(keys, rig_.extents(from, keys), {.stream = some_stream(from)});
    if (!stored) {
      EXPECT_TRUE(failing_) << stored.error().message;
      return;
    }
    const auto counts = stored->wait();
    ASSERT_TRUE(counts.has_value());
    EXPECT_EQ(counts->stored + counts->present + counts->refused + counts->failed, keys.size());
    if (!failing_) {
      EXPECT_EQ(counts->failed, 0u);
    }
  }
  void load(const std::vector<kvcache::Key>& keys) {
    last_ = keys;
    const kvcache::Match match = rig_.store->match(keys);
    if (match.size() == 0) return;
    const Object& into = some_memory();
    const auto load = rig_.store->load(match.keys(), rig_.extents(into, match.keys()),
                                       {.layer_order = random_.chance(0.7),
                                        .promote = random_.chance(0.7),
                                        .stream = some_stream(into)});
    if (!load) {
      EXPECT_TRUE(failing_) << load.error().message;
      return;
    }
    if (failing_ && random_.chance(0.1)) load->cancel();
    const Status outcome = load->wait();
    EXPECT_EQ(outcome.has_value(), load->leading() == match.size());
    if (!failing_) {
      EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    }
    const auto right = rig_.blocks_of(match.keys().first(load->leading()));
    EXPECT_EQ(bytes_in(into, right.size()), right);
    loaded_ += load->leading();
  }

  Random random_;
  const bool failing_;
  GpuRig rig_;
  const std::vector<kvcache::Key> keys_;
  std::vector<std::unique_ptr<Buffer>> on_gpu_;
  std::vector<std::unique_ptr<Host>> on_host_;
  std::vector<kvcache::Key> last_;
  kvcache::Match held_;
  std::uint64_t loaded_ = 0;
};

TEST(KvGpuRandom, ServesWhatItWasGivenOrAnError) {
  for (const bool failing : {false, true}) {
    std::uint64_t loaded = 0;
    std::uint64_t risen = 0;
    const std::array shapes{small_geometry(), any_size_geometry(false), any_size_geometry(true)};
    for (std::uint64_t seed = 1; seed <= 9 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(fmt::format("seed {}, failing {}", seed, failing));
      KvGpuModel model(seed, failing, shapes[seed % 2 == 1 ? 0 : seed % 4 / 2 + 1]);
      for (int i = 0; i < 60; ++i) model.step();
      model.finish();
      loaded += model.loaded();
      risen += model.risen();
    }
    EXPECT_GT(loaded, 50u);
    EXPECT_GT(risen, 1u);
  }
}

TEST(KvGpu, WithAFolderAlone) {
  GpuRig rig;
  for (const unsigned workers : {1U, 3U}) {
    auto options = rig.options({}, 16);
    options.workers = workers;
    rig.store.reset();
    rig.store = kvcache::Store::open(rig.mover, options).value();
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 24, 1000 * workers));
    for (std::size_t i = 0; i < keys.size(); i += 4) {
      ASSERT_EQ(rig.put(std::span(keys).subspan(i, 4))->stored, 4u);
    }
    const auto there = std::span(keys).last(16);
    EXPECT_TRUE(rig.get(there).has_value());
    EXPECT_TRUE(rig.get(there, {.layer_order = false}).has_value());
    rig.store.reset();  // without a flush
    rig.store = kvcache::Store::open(rig.mover, options).value();
    EXPECT_TRUE(rig.get(there).has_value());
    EXPECT_EQ(rig.store->stats().damaged, 0u);
  }
}

// The storage backend does not write behind the end of a cut file, so the store makes it long
// again.
TEST(KvGpu, FolderWhoseFileIsCut_ServesTheRestAndWritesOn) {
  GpuRig rig;
  rig.open({}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 8));
  const auto first = std::span(keys).first(4);
  const auto last = std::span(keys).last(4);
  for (const kvcache::Key& key : first) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  std::filesystem::resize_file(rig.folder.path / "blocks", 2 * rig.slot.value);
  EXPECT_EQ(rig.put(last)->stored, 4u);
  const Status flushed = rig.store->flush();
  ASSERT_FALSE(flushed.has_value());
  EXPECT_NE(flushed.error().message.find("somebody cut"), std::string::npos)
      << flushed.error().message;
  EXPECT_EQ(rig.store->match(first).size(), 4u);
  std::size_t right = 0;
  for (const kvcache::Key& key : first) right += rig.get({&key, 1}) ? 1 : 0;
  EXPECT_EQ(right, 2u);
  EXPECT_EQ(rig.store->stats().damaged, 2u);
  EXPECT_TRUE(rig.get(last).has_value());
  EXPECT_TRUE(rig.store->flush().has_value());  // said once
  std::filesystem::resize_file(rig.folder.path / "index", 4096);
  EXPECT_FALSE(rig.store->flush().has_value());
  EXPECT_TRUE(rig.get(last).has_value());
  EXPECT_EQ(rig.put(first)->stored, 2u);
  EXPECT_TRUE(rig.store->flush().has_value());
  rig.open({}, 8);
  EXPECT_EQ(rig.store->stats().reopened, 2u);  // the list of the others was lost
}

// Zeros are no block, even of a store that trusts what it wrote.
TEST(KvGpu, CutBlocks_AreNotTrusted) {
  GpuRig rig;
  auto options = rig.options({}, 8);
  options.tiers.back().verify = kvcache::Verify::found;
  rig.store = kvcache::Store::open(rig.mover, options).value();
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 8));
  ASSERT_EQ(rig.put(std::span(keys).first(7))->stored, 7u);
  std::filesystem::resize_file(rig.folder.path / "blocks", 0);
  ASSERT_EQ(rig.put(std::span(keys).last(1))->stored, 1u);
  for (const kvcache::Key& key : std::span(keys).first(7)) {
    EXPECT_FALSE(rig.get({&key, 1}).has_value());
  }
  EXPECT_EQ(rig.store->stats().damaged, 7u);
  EXPECT_TRUE(rig.get(std::span(keys).last(1)).has_value());
}

}  // namespace
}  // namespace headrace
