// SPDX-License-Identifier: Apache-2.0
// Cache::read: the bytes of any range, whatever becomes of the copies.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#include "core/fail.h"
#include "headrace/cache.h"
#include "headrace/file.h"
#include "headrace/random.h"
#include "tests/support/cache_rig.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using namespace test;

Result<std::vector<std::byte>> read(Cache& cache, const Extent& from, ReadOptions options = {}) {
  std::vector<std::byte> bytes(from.length.value);
  HEADRACE_TRY_STATUS(cache.read(from, bytes, options));
  return bytes;
}

TEST(CacheReadTest, RandomRanges_HaveTheBytesOfTheSource) {
  Random random(1);
  Source source(300000);
  for (const double fail_chance : {0.0, 0.3}) {
    CacheRig rig({.fake = {.fail_chance = fail_chance, .own_thread = true}, .budget = 65536_B});
    for (int i = 0; i < 150; ++i) {
      const std::uint64_t offset = random.below(300000);
      const Extent from = source.at(offset, random.below(300000 - offset + 1));
      const Bytes block{1 + random.below(i % 2 == 0 ? 5000 : 100000)};  // some exceed the budget
      const auto bytes = read(*rig.cache, from, {.block = block});
      ASSERT_TRUE(bytes) << bytes.error().message;
      ASSERT_TRUE(source.equals(from, *bytes)) << offset << " " << block.value;
    }
  }
}

TEST(CacheReadTest, ReadsOfAnyShape_ShareTheBlocksOfTheGrid) {
  Source source(100000);
  CacheRig rig({.fake = {.own_thread = true}});
  ASSERT_TRUE(read(*rig.cache, source.at(0, 100000), {.block = 4096_B}));
  ASSERT_TRUE(read(*rig.cache, source.at(5000, 5000), {.block = 4096_B}));
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.misses, 25u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.bytes_used, 100000_B) << "the last block ends with its object";
}

TEST(CacheReadTest, SmallAndUnalignedReads_FetchOnlyCellsOf64KiB) {
  Source source(10 << 20);
  CacheRig rig({.fake = {.own_thread = true}, .budget = 16_MiB});
  ASSERT_TRUE(read(*rig.cache, source.at(3'000'000, 100), {.block = 8_MiB}));
  EXPECT_EQ(rig.cache->stats().bytes_used, 64_KiB);
  // From cell 1 to cell 40: 1, 2 and 3, 4 to 7, 8 to 15, 16 to 31, 32 to 39, 40.
  ASSERT_TRUE(read(*rig.cache, source.at((64 << 10) + 1, 39 * (64 << 10)), {.block = 1_MiB}));
  EXPECT_EQ(rig.cache->stats().bytes_used, 64_KiB + Bytes{40 * (64 << 10)});
  EXPECT_EQ(rig.cache->stats().misses, 8u);
}

TEST(CacheReadTest, FileWithoutSpaceForItsBlocks_IsReadItself) {
  const TestFolder folder;
  std::vector<char> wanted(3 << 20);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<char>(i * 31 >> 3);
  const auto path = folder.at("file");
  std::ofstream(path, std::ios::binary).write(wanted.data(), static_cast<long>(wanted.size()));
  auto machine = Machine::discover({.gpu_driver = false, .storage = {folder.root().string()}});
  ASSERT_TRUE(machine);
  auto backends = Backends::open(*machine);
  ASSERT_TRUE(backends);
  Mover mover(*machine, *backends);
  const NodeId dram = machine->of_kind(NodeKind::dram).front()->id;
  auto file = File::open(*machine, path);
  ASSERT_TRUE(file);
  for (const Bytes budget : {64_KiB, 16_MiB}) {
    auto cache = Cache::create(
        mover, {.budgets = {{dram, budget}}, .placement = place::always(dram), .shards = 1});
    ASSERT_TRUE(cache);
    const Extent from = whole(**file).part(12345, Bytes{2 << 20});
    const auto bytes = read(**cache, from);
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_EQ(std::memcmp(bytes->data(), wanted.data() + 12345, bytes->size()), 0);
    // A file that has lost its end meanwhile.
    std::filesystem::resize_file(path, 1 << 20);
    (*cache)->invalidate(whole(**file));
    EXPECT_FALSE(read(**cache, whole(**file).part(2 << 20, 1_MiB), {.block = 32_KiB}));
    std::ofstream(path, std::ios::binary).write(wanted.data(), static_cast<long>(wanted.size()));
  }
}

TEST(CacheReadTest, BadRequest_IsRefused) {
  Source source(1000);
  CacheRig rig;
  std::vector<std::byte> bytes(10);
  EXPECT_EQ(rig.cache->read(source.at(0, 9), bytes).error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.cache->read(source.at(995, 10), bytes).error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.cache->read(source.at(0, 10), bytes, {.block = 0_B}).error().code,
            ErrorCode::invalid);
  EXPECT_TRUE(rig.cache->read(source.at(1000, 0), {}));
}

TEST(CacheReadTest, ReadThatIsStopped_IsCancelled) {
  Source source(1000);
  CacheRig rig;
  std::vector<std::byte> bytes(10);
  rig.fake->hold(true);
  int looks = 0;
  const std::function<bool()> stop = [&] { return ++looks == 2; };
  const auto status = rig.cache->read(source.at(0, 10), bytes, {.access = {.stop = &stop}});
  EXPECT_EQ(status.error().code, ErrorCode::cancelled);
  EXPECT_EQ(looks, 2);
  rig.fake->hold(false);
  rig.settle();
}

TEST(CacheReadTest, CopyThatDoesNotEnd_IsTimedOut) {
  Opaque opaque(1_MiB);
  Source source(1000);
  CacheRig rig;  // nothing completes
  std::vector<std::byte> bytes(10);
  rig.fake->hold(true);
  const ReadOptions soon{.timeout = std::chrono::milliseconds{1}};
  EXPECT_EQ(rig.cache->read(source.at(0, 10), bytes, soon).error().code, ErrorCode::timed_out);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_FALSE(rig.cache->read(whole(opaque).part(0, 10_B), bytes, soon)) << "no engine reads it";
}

}  // namespace
}  // namespace headrace
