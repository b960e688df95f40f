// SPDX-License-Identifier: Apache-2.0
// The cost of a block besides its bytes: every allocation of the process is counted. And a cache
// that runs out of memory: each allocation of a scenario fails in turn.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tests/support/cache_rig.h"
#include "tests/support/failing_new_testing.h"
#include "tests/support/plain_backend.h"

#if !defined(HEADRACE_TSAN)

namespace {
// The allocation that counts it down to 0 fails. At 0 or less none fails.
std::atomic<std::int64_t> until_failure{0};
}  // namespace

bool headrace::test::allocation_fails() noexcept {
  return until_failure > 0 && until_failure.fetch_sub(1) == 1;
}

namespace headrace {
namespace {

using namespace test;

TEST(CacheMemoryTest, ABlockCostsAtMost108BytesBesideItsOwnAndItsCells) {
  FakeOptions fake;
  fake.log = false;
  fake.inside_chance = 1;
  constexpr std::uint64_t kBlock = 192;
  Source source(42000 * kBlock);
  CacheRig rig({.fake = fake, .cache = {.reserve = true}, .budget = 16_MiB});
  rig.record = false;
  const auto load = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) {
      (void)rig.cache->access(source.at(i * kBlock, kBlock));
    }
    rig.settle();
  };
  load(0, 100);  // allocated once
  // The worst moment is just after the index grew: 41000 is just beyond 5/4 * 2^15.
  for (const std::uint64_t blocks : {20000U, 41000U}) {
    rig.cache->flush();
    EXPECT_EQ(rig.cache->stats().blocks, 0u);
    const std::int64_t before = live_bytes;
    load(0, blocks);
    const CacheStats stats = rig.cache->stats();
    ASSERT_EQ(stats.blocks, blocks);
    const double each = static_cast<double>(live_bytes - before) / static_cast<double>(blocks);
    EXPECT_LE(each, 108.0) << "the index and the order add 10 to 34, in arrays of zeros";
    EXPECT_GE(each, 48.0) << "is anything counted?";
    // Gaps between blocks are described in the gaps.
    for (std::uint64_t i = 0; i < blocks; i += 2) rig.cache->invalidate(source.at(i * kBlock, 1));
    // Entries stay for other blocks (readers.h).
    const double halved = static_cast<double>(live_bytes - before) / static_cast<double>(blocks);
    EXPECT_LE(halved, 128.0);
  }
}

constexpr std::uint64_t kPart = 4096;

// Everything that a cache does, in one thread, except allocating slabs: std::filesystem::path frees
// twice in libstdc++ 12 when its own memory runs out, and allocate() reads files of the host.
class FailingScene {
 public:
  explicit FailingScene(bool inlines) : machine_(small_machine()), source_(64 * kPart) {
    backends_.add(std::make_unique<PlainBackend>(std::vector{kCpuA}, inlines));
    mover_ = std::make_unique<Mover>(machine_, backends_,
                                     MoverOptions{.route = place::one, .poller = false});
    held_.reserve(256);
    cache_ = *Cache::create(*mover_, {.budgets = {{kDram, Bytes{24 * kPart}}},
                                      .placement = place::always(kDram),
                                      .slab = Bytes{8 * kPart},
                                      .pages = PageSize::base,
                                      .reserve = true});
  }

  void play() {
    attempt([&] { plan_ = cache_->prefetch(blocks(0, 24)); });
    for (std::uint64_t i = 0; i < 12; ++i) use(i, i % 5 == 0);
    // Accesses far beyond its window come from others; each is looked up in the plan.
    Prefetch narrow;
    attempt([&] { narrow = cache_->prefetch(blocks(24, 64), {.window = Bytes{2 * kPart}}); });
    for (std::uint64_t i = 40; i < 56; ++i) use(i, false);
    attempt([&] { narrow.cancel(); });
    attempt([&] { cache_->invalidate(source_.at(2 * kPart, 3 * kPart)); });
    for (std::uint64_t i = 30; i < 50; ++i) use(i, i % 7 == 0);
    attempt([&] { cache_->flush(); });
    for (std::uint64_t i = 10; i < 24; ++i) use(i, false);
    std::array<Extent, 4> four{source_.at(0, 100), source_.at(5, 9000), source_.at(0, 100),
                               source_.at(60 * kPart, kPart)};
    std::array<Block, 4> found;
    attempt([&] { cache_->access(four, found); });
    attempt([&] { cache_->clear(); });
    use(1, true);
  }

  // With memory again: all bytes are right, all copies end, and everything works.
  void judge() {
    for (const Block& block : held_) check(block);
    EXPECT_TRUE(cache_->forget(source_.object()).has_value());
    EXPECT_EQ(told_, listened_);
    held_.clear();
    cache_->clear();
    const CacheStats stats = cache_->stats();
    EXPECT_EQ(stats.blocks, 0u);
    EXPECT_EQ(stats.bytes_used, 0_B);
    EXPECT_EQ(stats.bytes_pinned, 0_B);
    plan_ = cache_->prefetch(blocks(0, 64));
    for (std::uint64_t i = 0; i < 64; ++i) use(i, false);
    EXPECT_EQ(plan_.progress().used, 64u);
    EXPECT_LE(cache_->stats().bytes_used, Bytes{24 * kPart});
    cache_.reset();
  }

 private:
  template <class Work>
  static void attempt(const Work& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      // The call can be repeated.
    }
  }
  std::vector<Extent> blocks(std::uint64_t first, std::uint64_t last) const {
    std::vector<Extent> extents;
    for (std::uint64_t i = first; i < last; ++i) extents.push_back(source_.at(i * kPart, kPart));
    return extents;
  }
  void use(std::uint64_t i, bool keep) {
    attempt([&] {
      Block block = cache_->access(source_.at(i * kPart, i % 3 == 0 ? kPart : kPart / 2));
      attempt([&] {
        block.on_ready([this] { ++told_; });
        ++listened_;
      });
      mover_->poll();
      check(block);
      if (keep) held_.push_back(std::move(block));
    });
  }
  // The block has the bytes of the source, here or there.
  void check(const Block& block) const {
    const auto bytes = block.wait();
    EXPECT_TRUE(bytes.has_value());
    EXPECT_TRUE(!bytes || source_.equals(block.extent(), *bytes));
  }

  Machine machine_;
  Source source_;
  Backends backends_;
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<Cache> cache_;
  Prefetch plan_;
  std::vector<Block> held_;
  int told_ = 0;
  int listened_ = 0;
};

TEST(CacheMemoryTest, RefusalOfAForeignPlan_NeedsNoMemory) {
  const Source source(4096);
  CacheRig rig;
  CacheRig other;
  const Extent extent = source.at(0, 4096);
  const Prefetch plan = other.cache->prefetch({&extent, 1});
  until_failure = 1;
  const Block block = rig.cache->access(extent, {.plan = &plan});
  until_failure = 0;
  EXPECT_EQ(block.wait().error().code, ErrorCode::invalid);
  other.settle();
}

TEST(CacheMemoryTest, EachAllocationMayFail) {
  for (const bool inlines : {false, true}) {
    std::int64_t most = 1;
    for (std::int64_t n = 1; n <= most; ++n) {
      SCOPED_TRACE(testing::Message() << "allocation " << n << ", inlines " << inlines);
      FailingScene scene(inlines);
      until_failure = n;
      scene.play();
      // 0: there was an n-th allocation.
      if (until_failure.exchange(0) == 0) most = n + 1;
      scene.judge();
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(most, 50) << "or nothing was tried";
  }
}

}  // namespace
}  // namespace headrace

#endif  // !HEADRACE_TSAN
