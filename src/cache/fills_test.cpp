// SPDX-License-Identifier: Apache-2.0
// Copies in flight: waits, callbacks and failures.
#include <gtest/gtest.h>

#include <coroutine>
#include <exception>
#include <string>

#include "headrace/cache.h"
#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;

constexpr auto kShort = std::chrono::milliseconds{1};

TEST(CacheFillsTest, WaitInACallback_IsRefused) {
  Source source(8192);
  CacheRig rig;
  rig.load(source.at(0, 4096));
  std::vector<std::byte> memory(4096);
  const MemoryRange to(memory, kDram);
  int called = 0;
  const Transfer transfer = rig.mover->copy(whole(to), source.at(0, 4096));
  transfer.on_done([&](const Result<MoveStats>&) {
    ++called;
    EXPECT_TRUE(rig.mover->in_callback());
    EXPECT_TRUE(rig.cache->access(source.at(0, 4096)).wait().has_value()) << "it is ready";
    const Block block = rig.cache->access(source.at(4096, 4096));
    EXPECT_EQ(block.wait().error().code, ErrorCode::invalid);
    EXPECT_EQ(rig.cache->forget(source.object()).error().code, ErrorCode::invalid);
    EXPECT_EQ(rig.mover->copy(whole(to), source.at(4096, 4096)).wait().error().code,
              ErrorCode::invalid);
  });
  rig.settle();
  EXPECT_EQ(called, 1);
  EXPECT_FALSE(rig.mover->in_callback());
}

TEST(CacheFillsTest, FailedCopy_GivesTheSourceAndIsTriedAgain) {
  Source source(4096);
  CacheRig rig;
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  const Block block = rig.cache->access(source.at(0, 4096));
  const auto bytes = block.wait();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_TRUE(source.holds(bytes->data()));
  EXPECT_EQ(block.state(), BlockState::failed);
  EXPECT_EQ(block.node(), kHbm);
  EXPECT_EQ(rig.cache->stats().failures, 1u);
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  rig.fake->break_engine(kCpuA, std::nullopt);
  rig.fake->break_engine(kCpuB, std::nullopt);
  const Block again = rig.cache->access(source.at(0, 4096));
  EXPECT_FALSE(source.holds((*again.wait()).data()));
  EXPECT_EQ(rig.cache->stats().misses, 2u);
}

TEST(CacheFillsTest, FailedCopyOfASourceThatNoCpuReaches_IsAnError) {
  Opaque opaque(4096_B);
  CacheRig rig;
  const Block block = rig.cache->access(whole(opaque));
  rig.settle();
  EXPECT_EQ(block.state(), BlockState::failed);
  EXPECT_FALSE(block.now());
  EXPECT_FALSE(block.wait().has_value());
  EXPECT_EQ(rig.cache->stats().failures, 1u);
}

TEST(CacheFillsTest, WaitUnderAStoppedClock_EndsAtItsBound) {
  ManualClock clock;
  Source source(4096);
  CacheRig rig({.clock = &clock});
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  EXPECT_EQ(block.wait(kShort).error().code, ErrorCode::timed_out);
}

TEST(CacheFillsTest, AChainOfAccessesInACallback_KeepsTheStackFlat) {
  constexpr std::uint64_t kLinks = 30'000;
  Source source(64 * 4096);
  FakeOptions fake;
  fake.inside_chance = 1;
  fake.log = false;
  CacheRig rig({.fake = fake, .budget = Bytes{8 * 4096}, .observe = false});
  std::uint64_t links = 0;
  const std::function<void()> next = [&] {
    if (++links < kLinks) rig.cache->access(source.at(links % 64 * 4096, 4096)).on_ready(next);
  };
  Transfer().on_done([&](const Result<MoveStats>&) { next(); });
  rig.settle();
  EXPECT_EQ(links, kLinks);
}

TEST(BlockTest, OnReady_CallsBackAtTheEndOfTheCopy) {
  Source source(4 * 4096);
  CacheRig rig;
  rig.fake->hold(true);
  std::string told;
  {
    const Block block = rig.cache->access(source.at(0, 4096));
    block.on_ready([&] { told += 'a'; });
    const Block other = rig.cache->access(source.at(0, 4096));
    other.on_ready([&, open = rig.cache.get()] {
      told += 'b';
      // No lock is held here.
      (void)open->access(source.at(0, 4096));
      EXPECT_EQ(open->stats().blocks, 1u);
    });
    EXPECT_EQ(told, "");
  }
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(told, "ab");
  rig.cache->access(source.at(0, 4096)).on_ready([&] { told += 'c'; });
  EXPECT_EQ(told, "abc") << "at once";
  Block{}.on_ready([&] { told += 'd'; });
  EXPECT_EQ(told, "abcd") << "there is nothing to wait for";
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "broken"});
  }
  const Block failed = rig.cache->access(source.at(4096, 4096));
  failed.on_ready([&] { told += 'e'; });
  rig.settle();
  EXPECT_EQ(told, "abcde");
}

// Resumes the waiting coroutine; the frame frees itself.
struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

TEST(BlockTest, IsAwaited) {
  Source source(4 * 4096);
  CacheRig rig;
  rig.fake->hold(true);
  std::uint64_t read = 0;
  const auto use = [&](Extent extent) -> Task {
    const Block block = rig.cache->access(extent);
    const auto bytes = co_await block;
    EXPECT_TRUE(bytes && source.equals(extent, *bytes));
    EXPECT_EQ(block.state(), BlockState::ready);
    read += bytes->size();
  };
  use(source.at(0, 4096));
  use(source.at(4096, 100));
  EXPECT_EQ(read, 0u);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(read, 4196u);
  use(source.at(0, 4096));
  EXPECT_EQ(read, 2 * 4096u + 100) << "ready already";
}

}  // namespace
}  // namespace headrace
