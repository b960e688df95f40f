// SPDX-License-Identifier: Apache-2.0
// Blocks in GPU memory, on the software driver: its memory faults when the host touches it, so a
// copy, a gap or a read by mistake is noticed.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "headrace/buffer.h"
#include "headrace/cache.h"
#include "headrace/file.h"
#include "headrace/random.h"
#include "tests/support/cache_rig.h"
#include "tests/support/child.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

using namespace test;

struct HostSource : Source {
  explicit HostSource(std::uint64_t size) : Source(size, kDram) {}
  std::vector<std::byte> now(const Extent& extent) const {
    return {extent.memory(), extent.memory() + extent.length.value};
  }
};

// The bytes that code of the GPU would read there.
std::vector<std::byte> on_gpu(const Block& block) {
  std::vector<std::byte> bytes(block.extent().length.value);
  const auto address = block.device_address();
  EXPECT_TRUE(address.has_value());
  EXPECT_TRUE(copy_with_gpu(address.value_or(0), bytes.data(), bytes.size(), false));
  return bytes;
}

struct Rig {
  explicit Rig(const std::string& settings = "", CacheOptions options = {}) : gpu(settings) {
    if (options.budgets.empty()) options.budgets = {{kGpu, 1_MiB}};
    options.slab = std::min(options.slab, 64_KiB);
    auto made = Cache::create(mover, std::move(options));
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
    if (made) cache = std::move(*made);
  }

  const FakeGpu gpu;
  const Backends backends = Backends::open(gpu.machine).value();
  Mover mover{gpu.machine, backends};
  std::unique_ptr<Cache> cache;
};

CacheOptions always(const Placement& placement,
                    std::vector<std::pair<NodeId, Bytes>> budgets = {{kGpu, 1_MiB}}) {
  return {.budgets = std::move(budgets), .placement = place::always(placement)};
}

TEST(CacheGpu, Block_HasADeviceAddress) {
  for (const Placement& placement : {Placement::on(kGpu), Placement::on(NodeKind::gpu)}) {
    const HostSource source(100000);
    Rig rig("", always(placement));
    const Block block = rig.cache->access(source.at(5000, 9000));
    const auto address = block.wait_on_gpu();
    ASSERT_TRUE(address.has_value()) << address.error().message;
    EXPECT_EQ(block.device_address(), *address);
    EXPECT_EQ(*address % 256, 5000u % 256) << "aligned for the GPU's loads as the source is";
    EXPECT_EQ(block.state(), BlockState::ready);
    EXPECT_EQ(block.node(), kGpu);
    EXPECT_EQ(on_gpu(block), source.now(block.extent()));
    const Block part = rig.cache->access(source.at(6000, 1000));
    EXPECT_TRUE(part.hit());
    EXPECT_EQ(part.device_address(), *address + 1000);
    EXPECT_EQ(rig.cache->stats().bytes_used, Bytes{9000});
    EXPECT_EQ(rig.cache->stats().hits, 1u);
  }
}

TEST(CacheGpu, Cpu_ReadsTheSourceNeverTheCopy) {
  const HostSource source(10000);
  Rig rig("", always(Placement::on(kGpu)));
  const Block block = rig.cache->access(source.at(100, 5000));
  const auto bytes = block.wait();
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
  EXPECT_EQ(bytes->data(), source.at(100, 5000).memory());
  EXPECT_EQ(block.now()->data(), bytes->data());
  EXPECT_TRUE(block.device_address().has_value()) << "it was waited for";
  const Block clone = block.clone();
  EXPECT_EQ(clone.now()->data(), bytes->data());
}

TEST(CacheGpu, BlockOfAFile_IsOnlyReadByItsDeviceAddress) {
  const std::string path = testing::TempDir() + fmt::format("cache-gpu-{}", getpid());
  std::vector<std::byte> bytes(300000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 13 >> 3);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const struct Removal {
    const std::string& path;
    ~Removal() { std::filesystem::remove(path); }
  } removal{path};
  Rig rig("", always(Placement::on(kGpu)));
  const auto file = File::open(rig.gpu.machine, path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  for (const std::uint64_t offset : {0U, 4096U, 777U, 150001U}) {
    const Block block = rig.cache->access({file->get(), offset, Bytes{70000}});
    const auto address = block.wait_on_gpu();
    ASSERT_TRUE(address.has_value()) << address.error().message;
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    EXPECT_EQ(on_gpu(block), std::vector<std::byte>(from, from + 70000));
    EXPECT_EQ(block.now(), std::nullopt);
    const auto read = block.wait();
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, ErrorCode::unsupported);
    EXPECT_NE(read.error().message.find("device_address()"), std::string::npos);
  }
}

TEST(CacheGpu, BlockThatCpusReach_HasNoDeviceAddress) {
  const HostSource source(10000);
  Rig rig("", always(Placement::on(kDram), {{kDram, 1_MiB}, {kGpu, 1_MiB}}));
  const Block block = rig.cache->access(source.at(0, 1000));
  const auto bytes = block.wait();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_NE(bytes->data(), source.at(0, 1000).memory());
  EXPECT_EQ(block.device_address(), std::nullopt);
  EXPECT_EQ(block.wait_on_gpu().error().code, ErrorCode::unsupported);
  const Block none = rig.cache->access(source.at(0, 0));
  EXPECT_EQ(none.wait_on_gpu().error().code, ErrorCode::invalid);
  EXPECT_EQ(Block().wait_on_gpu().error().code, ErrorCode::invalid);
}

TEST(CacheGpu, BudgetsPinsAndEvictionAreThoseOfOtherNodes) {
  const HostSource source(400000);
  Rig rig("", always(Placement::on(kGpu), {{kGpu, 64_KiB}}));
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 16; ++i)
    held.push_back(rig.cache->access(source.at(i * 4096, 4096)));
  for (const Block& block : held) EXPECT_TRUE(block.wait_on_gpu().has_value());
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 64_KiB);
  {
    const Block refused = rig.cache->access(source.at(102400, 4096));
    EXPECT_EQ(refused.state(), BlockState::absent);
    EXPECT_EQ(refused.wait_on_gpu().error().code, ErrorCode::exhausted);
    EXPECT_EQ(refused.now()->data(), source.at(102400, 1).memory());
  }
  std::thread later([block = std::move(held[3])]() mutable { block = Block(); });
  const Block next =
      rig.cache->access(source.at(102400, 4096), {.space_timeout = std::chrono::seconds{30}});
  later.join();
  ASSERT_TRUE(next.wait_on_gpu().has_value());
  EXPECT_EQ(on_gpu(next), source.now(next.extent()));
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (i != 3) {
      EXPECT_EQ(on_gpu(held[i]), source.now(held[i].extent()));
    }
  }
  held.clear();
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Block block = rig.cache->access(source.at(i * 10000, 9000));
    ASSERT_TRUE(block.wait_on_gpu().has_value());
    EXPECT_EQ(on_gpu(block), source.now(block.extent()));
    EXPECT_LE(rig.cache->stats().bytes_used, 64_KiB);
  }
  EXPECT_GT(rig.cache->stats().evictions, 30u);
  ASSERT_TRUE(rig.cache->resize(kGpu, 0_B).has_value());
  EXPECT_EQ(rig.cache->stats().bytes_used, 4_KiB) << "which is held";
}

TEST(CacheGpu, GpuWithoutMemory_GivesTheSourceAndTheReason) {
  const HostSource source(1 << 20);
  Rig rig("memory=4M", always(Placement::on(kGpu), {{kGpu, 64_MiB}}));
  const auto all = allocate(rig.gpu.machine, 4_MiB, Placement::on(kGpu));
  ASSERT_TRUE(all.has_value()) << all.error().message;
  const Block block = rig.cache->access(source.at(0, 4096));
  EXPECT_EQ(block.state(), BlockState::absent);
  const auto address = block.wait_on_gpu();
  ASSERT_FALSE(address.has_value());
  EXPECT_EQ(address.error().code, ErrorCode::exhausted);
  EXPECT_NE(address.error().message.find("free of"), std::string::npos) << address.error().message;
  EXPECT_EQ(block.wait()->data(), source.at(0, 1).memory());
  EXPECT_EQ(rig.cache->stats().refusals, 1u);
}

TEST(CacheGpu, FullGpu_SpillsIfThePlacementSaysSo) {
  const HostSource source(1 << 20);
  std::vector<Placement> placements{Placement::on(NodeKind::gpu), Placement::on(kGpu)};
  placements[0].spill = {NodeKind::dram};
  placements[1].spill = {kHbm, kDram};  // one without a budget, one with
  for (Placement& placement : placements) {
    placement.strict = false;
    Rig rig("devices=2", always(placement, {{kDram, 64_KiB}, {kGpu, 8_KiB}}));
    const Block first = rig.cache->access(source.at(0, 8192));
    ASSERT_TRUE(first.wait_on_gpu().has_value());
    // A block that fits on the GPU takes the place of unpinned ones; otherwise it spills.
    const Block second = rig.cache->access(source.at(10000, 8000));
    ASSERT_TRUE(second.wait().has_value());
    EXPECT_EQ(second.node(), kDram);
    EXPECT_NE(second.wait()->data(), source.at(10000, 1).memory());
    const Block large = rig.cache->access(source.at(20000, 20000));
    ASSERT_TRUE(large.wait().has_value());
    EXPECT_EQ(large.node(), kDram);
    EXPECT_EQ(rig.cache->stats().refusals, 0u);
    const Block again = rig.cache->access(source.at(10000, 8000));
    EXPECT_TRUE(again.hit());
    const Block none = rig.cache->access(source.at(100000, 100000));
    EXPECT_EQ(none.state(), BlockState::absent);
    EXPECT_EQ(none.wait_on_gpu().error().code, ErrorCode::exhausted);
  }
}

TEST(CacheGpu, SeveralGpus_TheOneWithABudgetIsUsed) {
  const HostSource source(100000);
  Rig rig("devices=2", always(Placement::on(NodeKind::gpu), {{kOtherGpu, 1_MiB}}));
  const Block block = rig.cache->access(source.at(0, 5000));
  ASSERT_TRUE(block.wait_on_gpu().has_value());
  EXPECT_EQ(block.node(), kOtherGpu);
}

TEST(CacheGpu, LostGpu_LosesItsBlocks) {
  const HostSource source(1 << 20);
  Rig rig("lost_after=60", always(Placement::on(kGpu)));
  const Block held = rig.cache->access(source.at(0, 4096));
  ASSERT_TRUE(held.wait_on_gpu().has_value());
  std::optional<Error> error;
  for (std::uint64_t i = 1; i < 200 && !error; ++i) {
    const Block block = rig.cache->access(source.at(i * 4096, 4096));
    const auto address = block.wait_on_gpu();
    if (!address) error = address.error();
    EXPECT_EQ(block.wait()->data(), source.at(i * 4096, 1).memory()) << "read from the source";
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::io) << error->message;
  // From now on the GPU is not used.
  const std::uint64_t failures = rig.cache->stats().failures;
  const Block again = rig.cache->access(source.at(0, 4096));
  EXPECT_FALSE(again.hit());
  EXPECT_EQ(again.state(), BlockState::absent);
  EXPECT_EQ(again.wait_on_gpu().error().code, ErrorCode::io);
  EXPECT_NE(again.wait_on_gpu().error().message.find("is lost"), std::string::npos);
  EXPECT_EQ(again.wait()->data(), source.at(0, 1).memory());
  EXPECT_EQ(rig.cache->stats().failures, failures);
  EXPECT_EQ(rig.cache->stats().bytes_used, 4_KiB) << "which is held";
  EXPECT_EQ(held.state(), BlockState::evicting);
  EXPECT_EQ(rig.cache->resize(kGpu, 1_MiB).error().code, ErrorCode::io);
  const Prefetch plan = rig.cache->prefetch(std::vector{source.at(0, 4096)});
  EXPECT_EQ(plan.progress().started, 0u);
}

TEST(CacheGpu, LostGpu_SpillsIfThePlacementSaysSo) {
  const HostSource source(1 << 20);
  Placement placement = Placement::on(kGpu);
  placement.strict = false;
  placement.spill = {kDram};
  Rig rig("lost_after=40", always(placement, {{kGpu, 1_MiB}, {kDram, 1_MiB}}));
  bool lost = false;
  for (std::uint64_t i = 0; i < 200 && !lost; ++i) {
    lost = !rig.cache->access(source.at(i * 4096, 4096)).wait_on_gpu();
  }
  ASSERT_TRUE(lost);
  const Block block = rig.cache->access(source.at(0, 4096));
  ASSERT_TRUE(block.wait().has_value());
  EXPECT_EQ(block.node(), kDram);
  EXPECT_EQ(block.state(), BlockState::ready);
}

TEST(CacheGpu, Memory_IsReservedAndReleased) {
  Rig rig("memory=4M", [] {
    CacheOptions options = always(Placement::on(kGpu), {{kGpu, 3_MiB}});
    options.reserve = true;
    return options;
  }());
  EXPECT_EQ(allocate(rig.gpu.machine, 2_MiB, Placement::on(kGpu)).error().code,
            ErrorCode::exhausted);
  rig.cache.reset();
  EXPECT_TRUE(allocate(rig.gpu.machine, 3_MiB, Placement::on(kGpu)).has_value());
}

// Random operations between host memory, a GPU and a node that it spills to. Calls and copies of
// the driver fail, and the GPU has too little memory. The cache must never return bytes older than
// the last invalidate before the access, exceed its budgets, use a frame twice or count wrongly.
class GpuModel {
 public:
  GpuModel(std::uint64_t seed, bool failing)
      : random_(seed),
        failing_(failing),
        rig_(failing ? fmt::format("devices=2,memory=1M,fail=0.02,seed={}", seed) : "devices=2",
             options()) {
    std::ranges::fill(source_.bytes(), std::byte{0});
  }

  void step() {
    switch (random_.below(9)) {
      case 0:
      case 1:
      case 2: held_.push_back({rig_.cache->access(extent()), {}, {}}); break;
      case 3:
        if (!held_.empty()) held_.erase(held_.begin() + random_.below(held_.size()));
        break;
      case 4: write(); break;
      case 5: plan(); break;
      case 6: rig_.cache->flush(); break;
      case 7:
        ASSERT_TRUE(rig_.cache->resize(kGpu, Bytes{random_.below(100000)}).has_value());
        break;
      default:
        if (!held_.empty()) std::ignore = held_[random_.below(held_.size())].block.wait_on_gpu();
    }
    if (!held_.empty() && held_.back().at_access.empty()) {
      held_.back().at_access = source_.now(held_.back().block.extent());
    }
    while (held_.size() > 12) held_.erase(held_.begin());
    for (Held& held : held_) check(held);
    check_frames();
  }

  void finish() {
    for (Held& held : held_) {
      std::ignore = held.block.wait_on_gpu();
      EXPECT_NE(held.block.state(), BlockState::filling);
      EXPECT_TRUE(held.block.wait().has_value());
      check(held);
    }
    EXPECT_TRUE(failing_ || rig_.cache->stats().failures == 0);
    EXPECT_LE(rig_.cache->stats().bytes_pinned, rig_.cache->stats().bytes_used);
    held_.clear();
    plans_.clear();
    rig_.cache->clear();
    for (int i = 0; i < 30000 && rig_.cache->stats().bytes_used > 0_B; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    EXPECT_EQ(rig_.cache->stats().bytes_used, 0_B);
    EXPECT_EQ(rig_.cache->stats().bytes_pinned, 0_B);
    EXPECT_EQ(rig_.cache->stats().blocks, 0u);
    on_gpu_ += rig_.cache->stats().misses;
  }
  std::uint64_t checked() const { return on_gpu_; }

 private:
  struct Held {
    Block block;
    // A write adds one to a byte, so a later read returns this or more.
    std::vector<std::byte> at_access;
    std::vector<std::byte> copy;  // filled at the first read; it never changes
  };

  CacheOptions options() {
    Placement placement = Placement::on(kGpu);
    if (random_.chance(0.5)) {
      placement.strict = false;
      placement.spill = {kDram};
    }
    return {.budgets = {{kGpu, Bytes{10000 + random_.below(100000)}}, {kDram, 30000_B}},
            .placement = place::always(placement)};
  }
  Extent extent() {
    const std::uint64_t length =
        random_.chance(0.7) ? 1000 * (1 + random_.below(5)) : 1 + random_.below(12000);
    return source_.at(random_.below((kSource - length) / 1000 + 1) * 1000, length);
  }
  void write() {
    if (++writes_ > 250) return;
    const Extent written = extent();
    // Not while copies read it: that would be a race of the test itself.
    plans_.clear();
    for (int i = 0; i < 30000; ++i) {
      const MoverStats stats = rig_.mover.stats();
      if (stats.in_flight_pieces == 0 && stats.queued_pieces == 0) break;
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
    for (std::uint64_t i = written.offset; i < written.end(); ++i) {
      source_.bytes()[i] = static_cast<std::byte>(std::to_integer<int>(source_.bytes()[i]) + 1);
    }
    rig_.cache->invalidate(written);
  }
  void plan() {
    std::vector<Extent> extents;
    for (std::uint64_t i = 1 + random_.below(8); i > 0; --i) extents.push_back(extent());
    if (plans_.size() > 2) plans_.erase(plans_.begin());
    plans_.push_back(rig_.cache->prefetch(extents, {.window = Bytes{1000 + random_.below(40000)}}));
  }
  void check(Held& held) {
    EXPECT_EQ(held.block.now().value().size(), held.at_access.size());
    if (!held.block.device_address()) return;
    ++on_gpu_;
    std::vector<std::byte> bytes(held.at_access.size());
    // The reader of the test gets refused copies too.
    bool read = false;
    for (int i = 0; i < 100 && !read; ++i) {
      read = copy_with_gpu(*held.block.device_address(), bytes.data(), bytes.size(), false);
    }
    ASSERT_TRUE(read);
    const auto current = source_.now(held.block.extent());
    bool in_time = true;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      in_time = in_time && bytes[i] >= held.at_access[i] && bytes[i] <= current[i];
    }
    EXPECT_TRUE(in_time);
    if (held.copy.empty()) held.copy = bytes;
    EXPECT_EQ(bytes, held.copy);
  }
  void check_frames() {
    for (const Held& one : held_) {
      for (const Held& other : held_) {
        const auto x = one.block.device_address();
        const auto y = other.block.device_address();
        if (!x || !y || *x + one.at_access.size() <= *y || *y + other.at_access.size() <= *x) {
          continue;
        }
        EXPECT_EQ(*x - one.block.extent().offset, *y - other.block.extent().offset);
      }
    }
  }

  static constexpr std::uint64_t kSource = 40000;
  Random random_;
  const bool failing_;
  HostSource source_{kSource};
  Rig rig_;
  std::vector<Held> held_;
  std::vector<Prefetch> plans_;
  int writes_ = 0;
  std::uint64_t on_gpu_ = 0;
};

TEST(CacheGpu, RandomOperationsKeepThePromises) {
  for (std::uint64_t seed = 1; seed <= 12 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    GpuModel model(seed, seed % 3 != 0);
    for (int i = 0; i < 80 && !testing::Test::HasFailure(); ++i) model.step();
    model.finish();
    EXPECT_GT(model.checked(), 0u);
  }
}

TEST(CacheGpu, ForkChild_ReadsTheSource) {
  const HostSource source(10000);
  Rig rig("", always(Placement::on(kGpu)));
  const Block block = rig.cache->access(source.at(0, 4096));
  ASSERT_TRUE(block.wait_on_gpu().has_value());
  EXPECT_EQ(status_of_child([&] {
              return block.device_address() == std::nullopt &&
                     block.wait_on_gpu().error().code == ErrorCode::unsupported &&
                     block.wait()->data() == source.at(0, 1).memory();
            }),
            0);
  EXPECT_EQ(on_gpu(block), source.now(block.extent()));
}

}  // namespace
}  // namespace headrace
