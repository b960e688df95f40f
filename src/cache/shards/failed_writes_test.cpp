// SPDX-License-Identifier: Apache-2.0
// Write-backs that fail or cannot start, and what waits for them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "core/fail.h"
#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kUnit = 512;

// Write-backs of the first `bad` units fail while `broken`.
struct FailingRig {
  FailingRig(std::uint64_t units, std::uint64_t budget, std::uint64_t bad)
      : source(units * kUnit), rig(options(budget, bad)) {}

  CacheRig::Options options(std::uint64_t budget, std::uint64_t bad) {
    CacheRig::Options made;
    made.fake.inside_chance = 1;
    made.fake.script = [this, bad](const Piece& piece, std::uint64_t) -> Status {
      if (!broken || piece.to.object != &source.object()) return {};
      if (piece.to.offset < bad * kUnit) return fail(ErrorCode::io, "a bad sector");
      return {};
    };
    made.cache.slab = 4096_B;
    made.cache.shards = 1;
    made.cache.writable = true;
    made.budget = Bytes{budget * kUnit};
    made.clock = &clock;
    made.observe = false;
    return made;
  }
  Extent unit(std::uint64_t index) const { return source.at(index * kUnit, kUnit); }
  Status set(std::uint64_t index, int value) {
    Block block = rig.cache->access(unit(index), {.write = true});
    HEADRACE_TRY(const auto bytes, block.wait_to_write());
    std::memset(bytes.data(), value, bytes.size());
    return {};
  }
  int in_source(std::uint64_t index) const { return std::to_integer<int>(*unit(index).memory()); }

  ManualClock clock;
  bool broken = true;
  Source source;
  CacheRig rig;
};

TEST(CacheFailedWriteTest, DirtyBlocksBehindAThousandFailedOnes_GoBack) {
  constexpr std::uint64_t kBad = 1100;
  FailingRig test(8000, 2000, kBad);
  for (std::uint64_t i = 0; i < kBad; ++i) ASSERT_TRUE(test.set(i, 1));
  EXPECT_FALSE(test.rig.cache->write_back());
  for (std::uint64_t i = kBad; i < 6000; ++i) {
    const Status written = test.set(i, 2);
    ASSERT_TRUE(written) << i << ": " << written.error().message;
  }
  EXPECT_GT(test.rig.cache->stats().written_back, 3000u);
  EXPECT_EQ(test.in_source(kBad), 2);
  test.broken = false;
  ASSERT_TRUE(test.rig.cache->write_back());
  for (std::uint64_t i = 0; i < kBad; ++i) ASSERT_EQ(test.in_source(i), 1) << i;
}

TEST(CacheFailedWriteTest, FailedWriteBack_IsTriedAgainForItsSpace_AfterAPause) {
  FailingRig test(64, 8, 64);
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(test.set(i, 1));
  EXPECT_FALSE(test.rig.cache->write_back());
  const std::uint64_t failures = test.rig.cache->stats().write_failures;
  EXPECT_EQ(test.rig.cache->access(test.unit(20)).wait().error().code, ErrorCode::io);
  EXPECT_EQ(test.rig.cache->stats().write_failures, failures) << "not before the pause";
  test.broken = false;
  test.clock.advance(std::chrono::seconds{11});
  const Block block = test.rig.cache->access(test.unit(20));
  EXPECT_TRUE(block.wait().has_value());
  EXPECT_EQ(test.rig.cache->stats().bytes_dirty, 0_B);
}

TEST(CacheFailedWriteTest, FailuresOfOneRound_MakeOnePause) {
  FailingRig test(64, 8, 64);
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(test.set(i, 1));
  EXPECT_FALSE(test.rig.cache->write_back());
  EXPECT_GE(test.rig.cache->stats().write_failures, 8u);
  test.broken = false;
  test.clock.advance(std::chrono::milliseconds{101});
  EXPECT_TRUE(test.rig.cache->access(test.unit(20)).wait().has_value());
}

// Both victims are held, so no write-back will make space.
TEST(CacheFailedWriteTest, AccessWithoutVictims_DoesNotWaitForTheirHolders) {
  FailingRig test(8, 2, 0);
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(test.set(i, 1));
    held.push_back(test.rig.cache->access(test.unit(i), {.write = true}));
  }
  bool asked = false;
  const std::function<bool()> stop = [&] { return asked = true; };
  const Block block = test.rig.cache->access(test.unit(5), {.write = true, .stop = &stop});
  EXPECT_EQ(block.wait().error().code, ErrorCode::exhausted);
  EXPECT_FALSE(asked) << "it did not wait";
}

// Copies that do not end, under a clock that only sleeps advance.
class LateRig {
 public:
  explicit LateRig(bool writable) : waiting(clock), source(64 * 4096), rig(options(writable)) {}
  Nanoseconds taken(const std::function<Status()>& call) {
    const Nanoseconds before = clock.now();
    const Status status = call();
    EXPECT_TRUE(!status && status.error().code == ErrorCode::timed_out);
    return clock.now() - before;
  }

 private:
  CacheRig::Options options(bool writable) {
    return {.cache = {.slab = 64_KiB, .shards = 4, .writable = writable},
            .budget = 1_MiB,
            .clock = &clock,
            .waiting = &waiting,
            .observe = false};
  }

 public:
  ManualClock clock;
  ManualWaiting waiting;
  Source source;
  CacheRig rig;
};

TEST(CacheFailedWriteTest, LateWriteBacksOfAllShards_TakeOneTimeout) {
  LateRig late(true);
  for (std::uint64_t i = 0; i < 64; ++i) {
    Block block = late.rig.cache->access(late.source.at(i * 4096, 4096), {.write = true});
    ASSERT_TRUE(block.wait_to_write());
  }
  late.rig.fake->hold(true);
  Cache& cache = *late.rig.cache;
  const Nanoseconds bound = std::chrono::seconds{10};
  for (const auto& call : std::vector<std::function<Status()>>{
           [&] { return cache.write_back({.timeout = bound}); },
           [&] { return cache.sync({.timeout = bound}); },
           [&] { return cache.discard(whole(late.source.object()), bound); },
           [&] { return cache.forget(late.source.object(), bound); }}) {
    EXPECT_LT(late.taken(call), bound + std::chrono::seconds{5});
  }
  EXPECT_GT(late.rig.cache->stats().bytes_dirty, 0_B);
}

TEST(CacheFailedWriteTest, ForgetWithoutABound_WaitsForTheCopy) {
  LateRig late(false);
  late.rig.fake->hold(true);
  {
    const Block block = late.rig.cache->access(late.source.at(0, 4096));
  }
  late.waiting.asleep = [&] { late.rig.fake->hold(false); };
  const Status forgotten = late.rig.cache->forget(late.source.object(), Nanoseconds::max());
  EXPECT_TRUE(forgotten) << forgotten.error().message;
}

}  // namespace
}  // namespace headrace
