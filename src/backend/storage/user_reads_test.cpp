// SPDX-License-Identifier: Apache-2.0
// User sources through Mover and Cache: their bytes, or an error.
#include "headrace/storage/user_source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

enum class Fault { none, short_read, error, exception, unknown, too_many, changed };

// Byte i is i * 13 >> 4.
class Scripted final : public UserSource {
 public:
  Scripted(Bytes size, NodeId node, Bytes chunk = 1_B) : UserSource(size, node, "1", chunk) {}

  Result<Bytes> read(std::uint64_t offset, std::span<std::byte> to) override {
    const int running = ++running_;
    for (int most = most_; most < running && !most_.compare_exchange_weak(most, running);) {
    }
    ++reads;
    chunks += (offset + to.size() - 1) / chunk().value - offset / chunk().value + 1;
    if ((offset % chunk().value != 0) ||
        (to.size() % chunk().value != 0 && offset + to.size() != size().value)) {
      ++cut;
    }
    if (before) before();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = at(offset + i);
    --running_;
    switch (fault.load()) {
      case Fault::short_read: return Bytes{to.size() - 1};
      case Fault::error: return fail(ErrorCode::absent, "no such key");
      case Fault::exception: throw std::runtime_error("the socket broke");
      case Fault::unknown: throw 1;
      case Fault::too_many: return Bytes{to.size() + 1};
      default: return Bytes{to.size()};
    }
  }
  Result<std::string> version() override { return fault == Fault::changed ? "2" : "1"; }

  static std::byte at(std::uint64_t offset) { return static_cast<std::byte>(offset * 13 >> 4); }
  static bool equals(std::uint64_t offset, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != at(offset + i)) return false;
    }
    return true;
  }
  int most_at_once() const { return most_; }

  std::function<void()> before;
  std::atomic<Fault> fault = Fault::none;
  std::atomic<int> reads = 0;
  std::atomic<std::uint64_t> chunks = 0;  // read, also in part
  std::atomic<int> cut = 0;               // reads that do not begin and end with a chunk

 private:
  std::atomic<int> running_ = 0;
  std::atomic<int> most_ = 0;
};

class UserSourceTest : public testing::Test {
 protected:
  UserSourceTest()
      : machine(*Machine::discover({.gpu_driver = false, .storage = {folder.root().string()}})),
        backends(*Backends::open(machine)),
        mover(machine, backends),
        dram(machine.of_kind(NodeKind::dram).front()->id),
        source(Bytes{5'000'001}, machine.of_kind(NodeKind::storage).front()->id) {}

  std::unique_ptr<Cache> cache(CacheOptions options = {}) {
    options.budgets = {{dram, 4_MiB}};
    options.placement = place::always(dram);
    return *Cache::create(mover, std::move(options));
  }
  Extent part(std::uint64_t offset, std::uint64_t length) const {
    return whole(source).part(offset, Bytes{length});
  }

  const test::TestFolder folder;
  const Machine machine;
  const Backends backends;
  Mover mover;
  const NodeId dram;
  Scripted source;
};

TEST_F(UserSourceTest, RandomReadsUnderFaults_AreRightOrAnError) {
  const auto all = cache();
  Random random(1);
  std::vector<std::byte> bytes;
  int right = 0;
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    source.fault = random.below(2) == 0 ? Fault::none : static_cast<Fault>(random.below(7));
    const std::uint64_t offset = random.below(source.size().value);
    bytes.assign(1 + random.below(std::min<std::uint64_t>(source.size().value - offset, 1 << 20)),
                 std::byte{0});
    const Status status = all->read(part(offset, bytes.size()), bytes);
    if (status) {
      ASSERT_TRUE(Scripted::equals(offset, bytes)) << offset;
    } else {
      ASSERT_NE(source.fault, Fault::none) << status.error().message;
    }
    ++(status ? right : refused);
  }
  EXPECT_GT(right, 50);
  EXPECT_GT(refused, 10);
  EXPECT_LE(source.most_at_once(), 16);
}

TEST_F(UserSourceTest, EachFault_IsAnErrorThatNamesIt) {
  const auto all = cache();
  const std::pair<Fault, const char*> cases[] = {
      {Fault::short_read, "gave 99 of 100"},           {Fault::error, "no such key"},
      {Fault::exception, "the socket broke"},          {Fault::unknown, "unknown type"},
      {Fault::too_many, "returned 101 for 100 bytes"}, {Fault::changed, "from version 1 to 2"}};
  for (const auto& [fault, text] : cases) {
    source.fault = fault;
    const auto found = all->access(part(7, 100)).wait();
    ASSERT_FALSE(found) << text;
    EXPECT_NE(found.error().message.find(text), std::string::npos) << found.error().message;
  }
  source.fault = Fault::none;
  const Block block = all->access(part(7, 100));
  ASSERT_TRUE(block.wait());
  EXPECT_TRUE(Scripted::equals(7, *block.wait()));
}

TEST_F(UserSourceTest, SecondRead_ComesFromTheCache) {
  const auto all = cache();
  std::vector<std::byte> bytes(3 << 20);
  ASSERT_TRUE(all->read(part(0, bytes.size()), bytes));
  const int reads = source.reads;
  source.fault = Fault::error;
  ASSERT_TRUE(all->read(part(0, bytes.size()), bytes));
  EXPECT_EQ(source.reads, reads);
  EXPECT_TRUE(Scripted::equals(0, bytes));
}

TEST_F(UserSourceTest, SlowRead_TimesOutTheWaitAndIsUsedLater) {
  const auto all = cache();
  std::atomic<bool> go = false;
  source.before = [&] { go.wait(false); };
  const Block block = all->access(part(0, 1000));
  const auto early = block.wait(std::chrono::milliseconds{1});
  EXPECT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::timed_out);
  go = true;
  go.notify_all();
  const auto found = block.wait();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(Scripted::equals(0, *found));
}

TEST_F(UserSourceTest, MoreCopiesThanThreads_WaitForTheirTurn) {
  const auto all = cache();
  std::atomic<bool> go = false;
  source.before = [&] { go.wait(false); };
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 40; ++i) blocks.push_back(all->access(part(i * 8192, 4096)));
  // Time for a thread too many to show itself.
  for (int i = 0; i < 50 && source.reads < 17; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  go = true;
  go.notify_all();
  for (const Block& block : blocks) ASSERT_TRUE(block.wait());
  EXPECT_GT(source.most_at_once(), 1);
  EXPECT_LE(source.most_at_once(), 16);
}

TEST_F(UserSourceTest, PlannedExtents_AreReadAhead) {
  const auto all = cache();
  const Extent extents[] = {part(0, 100'000), part(2'000'000, 100'000)};
  const Prefetch plan = all->prefetch(extents);
  for (const Extent& extent : extents) {
    const Block block = all->access(extent, {.plan = &plan});
    ASSERT_TRUE(block.wait());
    EXPECT_TRUE(Scripted::equals(extent.offset, *block.wait()));
  }
  EXPECT_EQ(all->stats().misses, 0u);
}

TEST_F(UserSourceTest, LargestSource_IsReadToItsEnd) {
  const auto all = cache();
  Scripted largest(UserSource::kMostBytes, source.node());
  const std::uint64_t offset = largest.size().value - 100'000;
  std::vector<std::byte> bytes(100'000);
  ASSERT_TRUE(all->read(whole(largest).part(offset, 100'000_B), bytes));
  EXPECT_TRUE(Scripted::equals(offset, bytes));
}

// Chunks below a cell, above it, above the largest block, and above a piece of the Mover.
TEST_F(UserSourceTest, ReadsOfAnyShape_ReadEachChunkOnce) {
  for (const Bytes chunk : {100_B, 65'537_B, 300'000_B, 1_MiB, 1'500'000_B, 3_MiB}) {
    for (const bool writable : {false, true}) {
      const auto all = *Cache::create(mover, {.budgets = {{dram, 16_MiB}},
                                              .placement = place::always(dram),
                                              .shards = writable ? 1UL : 2UL,
                                              .writable = writable});
      Scripted chunked(Bytes{3'500'000}, source.node(), chunk);
      const auto most = 1 + chunked.size().value / std::max<std::uint64_t>(chunk.value, 60'000);
      Random random(1);
      std::vector<std::byte> bytes;
      for (int i = 0; i < 40; ++i) {
        const std::uint64_t offset = random.below(chunked.size().value - 1);
        bytes.assign(1 + random.below(std::min<std::uint64_t>(chunked.size().value - offset, 5000)),
                     std::byte{0});
        const Status read = all->read(whole(chunked).part(offset, Bytes{bytes.size()}), bytes);
        ASSERT_TRUE(read) << read.error().message;
        ASSERT_TRUE(Scripted::equals(offset, bytes));
      }
      EXPECT_EQ(chunked.cut, 0) << chunk.value;
      EXPECT_LE(static_cast<std::uint64_t>(chunked.reads), most) << chunk.value;
    }
  }
}

// The stretches of the shards (64 KiB) begin elsewhere than the chunks.
TEST_F(UserSourceTest, AccessesAndPlansInAChunk_ReadItOnce) {
  enum class Plan : std::uint8_t { none, extents, strided };
  constexpr std::uint64_t kSize = 500'001;
  for (const auto plan : {Plan::none, Plan::extents, Plan::strided}) {
    for (const std::size_t shards : {1, 4}) {
      for (const auto& [chunk, stride] : std::initializer_list<std::pair<Bytes, std::uint64_t>>{
               {65'536_B, 4096}, {100'001_B, 9091}, {300'000_B, 30'000}}) {
        const auto all = *Cache::create(
            mover,
            {.budgets = {{dram, 16_MiB}}, .placement = place::always(dram), .shards = shards});
        Scripted chunked(Bytes{kSize}, source.node(), chunk);
        const std::uint64_t chunks = (kSize - 1) / chunk.value + 1;
        const Strided equal{&chunked, 0, 4096_B, stride, kSize / stride - 1};
        std::vector<Extent> extents;
        Random random(1);
        for (std::uint64_t i = 0; plan == Plan::strided && i < equal.count; ++i) {
          extents.push_back({&chunked, i * stride, equal.length});
        }
        for (std::uint64_t i = 0; plan != Plan::strided && i < 50 * chunks; ++i) {
          const std::uint64_t begin = i % chunks * chunk.value;
          const std::uint64_t end = std::min(begin + chunk.value, kSize);
          const std::uint64_t offset = begin + random.below(end - begin);
          const std::uint64_t most = std::min<std::uint64_t>(end - offset, 4096);
          extents.push_back({&chunked, offset, Bytes{1 + random.below(most)}});
        }
        Prefetch ahead;
        if (plan == Plan::extents) ahead = all->prefetch(extents);
        if (plan == Plan::strided) ahead = all->prefetch(equal);
        for (const Extent& extent : extents) {
          const Block block = all->access(extent, {.plan = plan == Plan::none ? nullptr : &ahead});
          ASSERT_TRUE(block.wait());
          ASSERT_TRUE(Scripted::equals(extent.offset, *block.wait()));
        }
        const std::uint64_t used = (extents.back().end() - 1) / chunk.value + 1;
        EXPECT_EQ(chunked.chunks, plan == Plan::strided ? used : chunks)
            << shards << " shards, " << chunk.value;
        EXPECT_EQ(ahead.progress().used, plan == Plan::none ? 0 : extents.size());
      }
    }
  }
}

// The other half of the budget is for blocks in use.
TEST_F(UserSourceTest, PlanOfAnExtentInEachChunk_ProtectsHalfOfTheBudget) {
  const auto all = cache({.shards = 1});
  Scripted chunked(128_KiB * 40, source.node(), 128_KiB);
  const Strided first{&chunked, 0, 4096_B, Bytes{128_KiB}.value, 40};
  const Prefetch plan = all->prefetch(first);
  EXPECT_EQ(plan.progress().started, 16u);
  for (std::uint64_t i = 0; i < first.count; ++i) {
    const Block block = all->access({&chunked, i * first.stride, 4096_B}, {.plan = &plan});
    ASSERT_TRUE(block.wait());
    EXPECT_LE(plan.progress().started - plan.progress().used, 16u);
  }
  EXPECT_EQ(chunked.chunks, first.count);
}

// Also a chunk that no number of bytes can hold.
TEST_F(UserSourceTest, ChunksAboveEachBudget_LeaveTheExtent) {
  for (const std::size_t shards : {1, 4}) {
    for (const Bytes chunk : {5_MiB, UserSource::kMostBytes, Bytes{~std::uint64_t{0}}}) {
      for (const Bytes size : {Bytes{20'000'000}, UserSource::kMostBytes}) {
        const auto all = cache({.shards = shards});
        Scripted chunked(size, source.node(), chunk);
        for (const std::uint64_t offset : {std::uint64_t{5'000'000}, size.value - 100'000}) {
          const Block block = all->access({&chunked, offset, 100'000_B});
          ASSERT_TRUE(block.wait()) << block.wait().error().message;
          EXPECT_TRUE(Scripted::equals(offset, *block.wait()));
          std::vector<std::byte> bytes(100'000);
          const Status read = all->read({&chunked, offset, 100'000_B}, bytes);
          ASSERT_TRUE(read) << read.error().message;
          EXPECT_TRUE(Scripted::equals(offset, bytes));
        }
        EXPECT_TRUE(all->forget(chunked));
      }
    }
  }
}

TEST_F(UserSourceTest, ChunkWithoutSpace_LeavesTheExtent) {
  const auto small = *Cache::create(
      mover,
      {.budgets = {{dram, 64_KiB}}, .placement = place::always(dram), .slab = 64_KiB, .shards = 1});
  Scripted chunked(Bytes{1'000'000}, source.node(), 128_KiB);
  const Block block = small->access({&chunked, 130'000, 10'000_B});
  ASSERT_TRUE(block.wait()) << block.wait().error().message;
  EXPECT_TRUE(Scripted::equals(130'000, *block.wait()));
  EXPECT_EQ(small->stats().refusals, 0u);
}

TEST_F(UserSourceTest, CopyOfAnyRange_IsCutBetweenChunks) {
  const Bytes chunk{700'001};
  Scripted chunked(Bytes{5'000'001}, source.node(), chunk);
  std::vector<std::byte> bytes(3 * chunk.value + 200);
  const MemoryRange memory(bytes, dram);
  const Extent from = whole(chunked).part(chunk.value - 100, Bytes{bytes.size()});
  ASSERT_TRUE(mover.copy(whole(memory), from).wait());
  EXPECT_TRUE(Scripted::equals(from.offset, bytes));
  EXPECT_EQ(chunked.reads, 3);
  EXPECT_EQ(chunked.cut, 2) << "the first and the last piece are parts of their chunks";
}

// The stretches of the shards (64 KiB) do not begin where the chunks do.
TEST_F(UserSourceTest, ChunkAcrossShardsOfAWritableCache_IsRead) {
  const auto shards =
      *Cache::create(mover, {.budgets = {{dram, 16_MiB}}, .shards = 4, .writable = true});
  Scripted chunked(Bytes{5'000'001}, source.node(), Bytes{100'001});
  std::vector<std::byte> bytes(5'000'001);
  const Status read = shards->read(whole(chunked), bytes);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(Scripted::equals(0, bytes));
  EXPECT_EQ(chunked.cut, 0);
}

TEST_F(UserSourceTest, SourceOfMoreBytes_EndsTheProgram) {
  EXPECT_DEATH(Scripted(UserSource::kMostBytes + 1_B, source.node()), "size <= kMostBytes");
}

TEST_F(UserSourceTest, Write_IsDenied) {
  const auto all = cache({.shards = 1, .writable = true});
  Block block = all->access(part(0, 4096), {.write = true});
  EXPECT_EQ(block.wait_to_write().error().code, ErrorCode::denied);
  std::vector<std::byte> bytes(4096);
  const MemoryRange memory(bytes, dram);
  EXPECT_EQ(mover.copy(part(0, 4096), whole(memory)).wait().error().code, ErrorCode::denied);
}

}  // namespace
}  // namespace headrace
