// SPDX-License-Identifier: Apache-2.0
// The cache as a whole: made, emptied, resized, destroyed; and the order of invalidate().
#include "headrace/cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/sanitizers.h"
#include "tests/support/cache_rig.h"

#if defined(HEADRACE_ASAN)
#include <sanitizer/allocator_interface.h>
#endif

namespace headrace {
namespace {

using namespace test;

TEST(CacheCoreTest, Create_RefusesInvalidBudgets) {
  CacheRig rig;
  const auto create = [&](CacheOptions options) {
    return Cache::create(*rig.mover, std::move(options));
  };
  for (const auto& budgets :
       std::vector<std::vector<std::pair<NodeId, Bytes>>>{{},
                                                          {{kDram, 0_B}},
                                                          {{kDram, 1_MiB}, {kHbm, 0_B}},
                                                          {{kDisk, 1_MiB}},
                                                          {{NodeId{77}, 1_MiB}},
                                                          {{kDram, 1_MiB}, {kDram, 1_MiB}}}) {
    const auto made = create({.budgets = budgets});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, ErrorCode::invalid) << made.error().message;
  }
  EXPECT_FALSE(create({.budgets = {{kDram, 1_MiB}}, .slab = 100_B}).has_value());
}

TEST(CacheCoreTest, InvalidateDropsAllOverlappingReadyCopies) {
  Source source(100000);
  CacheRig rig;
  rig.load(source.at(0, 4096));
  rig.load(source.at(2000, 50000));
  rig.load(source.at(60000, 100));
  const Block held = rig.cache->access(source.at(0, 4096));
  const std::byte old = (*held.now())[3000];
  source.bytes()[3000] = ~old;
  rig.cache->invalidate(source.at(3000, 1));
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.invalidations, 2u);
  EXPECT_EQ(stats.blocks, 1u);
  EXPECT_EQ(held.state(), BlockState::evicting);
  EXPECT_EQ((*held.now())[3000], old);  // held blocks keep their bytes
  const Block fresh = rig.cache->access(source.at(0, 4096));
  rig.settle();
  EXPECT_EQ((*fresh.wait())[3000], ~old);
  EXPECT_EQ(rig.cache->stats().bytes_used, Bytes{4096 * 2 + 100});
}

TEST(CacheCoreTest, NoAccessAfterInvalidateSeesACopyThatWasInFlight) {
  Source source(4096);
  CacheRig rig;
  rig.fake->hold(true);
  const Block before = rig.cache->access(source.at(0, 4096));
  ASSERT_EQ(rig.fake->in_flight(), 1u);
  source.bytes()[0] = std::byte{0xaa};
  rig.cache->invalidate(source.at(0, 4096));
  const Block after = rig.cache->access(source.at(0, 4096));
  EXPECT_EQ(after.state(), BlockState::filling);
  rig.fake->finish(1);  // the first copy ends: the second access does not wait for it
  EXPECT_EQ(before.state(), BlockState::evicting);
  EXPECT_EQ(after.state(), BlockState::filling);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ((*after.wait())[0], std::byte{0xaa});
  EXPECT_NE((*before.wait()).data(), (*after.wait()).data());
  EXPECT_EQ(rig.cache->stats().misses, 2u);
}

TEST(CacheCoreTest, TheFrameOfAnInvalidatedCopyIsNotReusedBeforeTheEngineIsDone) {
  Source source(8192);
  CacheRig rig({.budget = 4096_B});
  rig.fake->hold(true);
  {
    const Block dropped = rig.cache->access(source.at(0, 4096));
  }
  rig.cache->invalidate(source.at(0, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 4096_B);  // the engine still writes to it
  EXPECT_EQ(rig.cache->access(source.at(4096, 4096)).state(), BlockState::absent);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  EXPECT_EQ(rig.cache->stats().failures, 0u);
  EXPECT_EQ(rig.cache->access(source.at(4096, 4096)).state(), BlockState::filling);
  rig.settle();
}

TEST(CacheCoreTest, Flush_DropsUnpinnedBlocks_ClearDropsAll) {
  Source source(100000);
  CacheRig rig;
  rig.load(source.at(0, 4096));
  const Block held = rig.cache->access(source.at(8192, 4096));
  rig.settle();
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
  EXPECT_EQ(rig.cache->access(source.at(8192, 4096)).state(), BlockState::ready);
  rig.cache->clear();
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_TRUE(source.equals(held.extent(), *held.now()));
  EXPECT_EQ(rig.cache->stats().bytes_used, 4096_B);
}

TEST(CacheCoreTest, ResizeShrinksAtOnceAsFarAsPinsAllow) {
  Source source(100000);
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 16384_B});
  Block held = rig.cache->access(source.at(0, 4096));
  for (const std::uint64_t at : {1U, 2U, 3U}) rig.load(source.at(at * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 4u);
  ASSERT_TRUE(rig.cache->resize(kDram, 8192_B).has_value());
  EXPECT_EQ(rig.cache->stats().bytes_used, 8192_B);
  ASSERT_TRUE(rig.cache->resize(kDram, 0_B).has_value());
  EXPECT_EQ(rig.cache->stats().bytes_used, 4096_B);
  EXPECT_TRUE(source.equals(held.extent(), *held.now()));
  held = Block{};
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  EXPECT_EQ(rig.cache->access(source.at(0, 4096)).state(), BlockState::absent);
  ASSERT_TRUE(rig.cache->resize(kDram, 8192_B).has_value());
  rig.load(source.at(0, 4096));
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
  EXPECT_EQ(rig.cache->resize(kHbm, 1_MiB).error().code, ErrorCode::absent);
}

// The data of this process, in KiB. Memory that earlier tests freed is no part of it.
rlim_t data_kib() {
#if defined(HEADRACE_ASAN)
  __sanitizer_purge_allocator();
#endif
  std::ifstream status("/proc/self/status");
  rlim_t data = 0;
  for (std::string word; status >> word;) {
    if (word == "VmData:") status >> data;
  }
  return data;
}

// A broken cache would fill the machine. With this limit it allocates at most two slabs of 1 GiB.
class BoundedMemory {
 public:
  BoundedMemory() {
    getrlimit(RLIMIT_DATA, &before_);
    const rlim_t most = (data_kib() << 10) + (rlim_t{5} << 29);
    const rlimit bounded{.rlim_cur = std::min(most, before_.rlim_max),
                         .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_DATA, &bounded);
  }
  ~BoundedMemory() { setrlimit(RLIMIT_DATA, &before_); }
  BoundedMemory(const BoundedMemory&) = delete;
  BoundedMemory& operator=(const BoundedMemory&) = delete;

 private:
  rlimit before_{};
};

TEST(CacheCoreTest, ResizeWithReserve_AllocatesTheGrowthAtOnce) {
  CacheRig rig({.cache = {.slab = 1_MiB, .reserve = true}, .budget = 1_MiB});
  const rlim_t before = data_kib();
  ASSERT_TRUE(rig.cache->resize(kDram, 65_MiB).has_value());
  EXPECT_GE(data_kib() - before, 64U << 10);
}

TEST(CacheCoreTest, ResizeWithReserveBeyondFreeMemory_ChangesNothing) {
  Source source(4 << 20);
  CacheRig rig({.cache = {.slab = 1_MiB, .reserve = true}, .budget = 1_MiB});
  const BoundedMemory bounded;
  const Status grown = rig.cache->resize(kDram, 1024_GiB * 64);
  ASSERT_FALSE(grown.has_value());
  EXPECT_EQ(grown.error().code, ErrorCode::exhausted);
  for (std::uint64_t i = 0; i < 4; ++i) rig.load(source.at(i << 20, 1 << 20));
  EXPECT_EQ(rig.cache->stats().bytes_used, 1_MiB) << "the budget";
}

// A check per slab would fill the machine and start the OOM killer.
TEST(CacheCoreTest, Reserve_BeyondFreeMemory_AllocatesNothing) {
  CacheRig rig;
  const BoundedMemory bounded;
  const auto made =
      Cache::create(*rig.mover, {.budgets = {{NodeId{0}, 1024_GiB * 64}}, .reserve = true});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::exhausted);
  EXPECT_NE(made.error().message.find("64 TiB do not fit"), std::string::npos)
      << made.error().message;
}

TEST(CacheCoreTest, TheDestructorWaitsForCopiesInFlight) {
  Source source(40960);
  CacheRig rig;
  for (std::uint64_t i = 0; i < 10; ++i) (void)rig.cache->access(source.at(i * 4096, 4096));
  rig.cache.reset();
  EXPECT_EQ(rig.fake->in_flight(), 0u);
}

TEST(CacheCoreTest, ForgetDropsAnObjectAndWaitsUntilNoEngineReadsIt) {
  Source kept(4096);
  Source gone(8192);
  CacheRig rig;
  rig.load(kept.at(0, 4096));
  rig.load(gone.at(0, 4096));
  rig.fake->hold(true);
  Block held = rig.cache->access(gone.at(4096, 4096));
  const auto status = rig.cache->forget(gone.object(), std::chrono::milliseconds{2});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::timed_out);
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
  rig.fake->hold(false);
  EXPECT_TRUE(rig.cache->forget(gone.object()).has_value());
  EXPECT_EQ(rig.fake->in_flight(), 0u);
  EXPECT_EQ(held.state(), BlockState::evicting);  // held blocks are kept
  EXPECT_TRUE(rig.cache->forget(kept.object(), Nanoseconds{0}).has_value());
}

TEST(CacheForgetTest, HeldBlockOfAForgottenObject_DoesNotReadTheObject) {
  CacheRig rig;
  Block held;
  {
    Source gone(4096);
    held = rig.cache->access(gone.at(100, 10));
    rig.settle();
    ASSERT_TRUE(rig.cache->forget(gone.object()));
  }
  // AddressSanitizer ends the test if the object is read.
  EXPECT_EQ(held.now()->size(), 10u);
  EXPECT_EQ((*held.wait())[0], std::byte{(100 * 7 + 1) % 256});
  EXPECT_EQ(held.node(), kDram);
}

using CacheDeathTest = testing::Test;

TEST(CacheDeathTest, ACacheMustNotOutliveItsMover) {
  EXPECT_DEATH(CacheRig().mover.reset(), "a Mover is destroyed before its Cache");
}

}  // namespace
}  // namespace headrace
