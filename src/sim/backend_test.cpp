// SPDX-License-Identifier: Apache-2.0
#include "sim/backend.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/thread.h"
#include "sim/sim_testing.h"

namespace headrace::sim {
namespace {

using namespace std::chrono_literals;

class Ends final : public Completion {
 public:
  explicit Ends(Scheduler& turns) : turns_(turns) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    all.push_back({tag, turns_.now(), std::move(outcome)});
  }
  struct End {
    std::uint64_t tag;
    Nanoseconds time;
    Status outcome;
  };
  std::vector<End> all;

 private:
  Scheduler& turns_;
};

struct Sides {
  explicit Sides(Host& host, Bytes bytes = 64_MiB)
      : from(*host.reserve(kSlow, bytes)), to(*host.reserve(kFast, bytes)) {}
  Piece piece(EngineId engine, std::uint64_t at, Bytes length, std::uint64_t tag) const {
    return {.from = {&from->object(), at, length},
            .to = {&to->object(), at, length},
            .engine = engine,
            .tag = tag};
  }
  std::shared_ptr<ReservedMemory> from, to;
};

TEST(SimBackend, DsaPieces_ShareTheRateAndAreReportedByPoll) {
  test_on_host([](Host& host) {
    const Sides sides(host);
    Ends ends(host.turns());
    const auto backend = open(host, {kDsa});
    ASSERT_TRUE(backend.has_value());
    EXPECT_FALSE((*backend)->capabilities().completes_itself);
    const Piece pieces[] = {sides.piece(kDsa, 0, Bytes{10'000'000}, 1),
                            sides.piece(kDsa, 10'000'000, Bytes{10'000'000}, 2)};
    EXPECT_EQ(*(*backend)->submit(pieces, ends), 2U);
    host.turns().sleep(1900us);
    EXPECT_EQ((*backend)->poll(), 0U);
    host.turns().sleep(200us);
    EXPECT_TRUE(ends.all.empty());
    EXPECT_EQ((*backend)->poll(), 2U);
    ASSERT_EQ(ends.all.size(), 2U);
    EXPECT_TRUE(ends.all[0].outcome.has_value());
    EXPECT_EQ(ends.all[0].tag, 1U);
  });
}

TEST(SimBackend, CoresCopyOnePieceEachAndReportThemselves) {
  test_on_host([](Host& host) {
    const Sides sides(host);
    Ends ends(host.turns());
    const auto backend = open(host, {kCores}, {.workers = 2});
    ASSERT_TRUE(backend.has_value());
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < 4; ++i) pieces.push_back(sides.piece(kCores, i << 20, 1_MiB, i));
    EXPECT_EQ(*(*backend)->submit(pieces, ends), 4U);
    EXPECT_TRUE(ends.all.empty());
    host.turns().sleep(1s);
    ASSERT_EQ(ends.all.size(), 4U);
    // Two workers: 2 and 3 begin when 0 and 1 have ended.
    EXPECT_EQ(ends.all[0].time, ends.all[1].time);
    EXPECT_NEAR(seconds(ends.all[2].time), 2 * seconds(ends.all[0].time), 1e-6);
  });
}

TEST(SimBackend, SmallPieceOfCores_IsCopiedBySubmit) {
  test_on_host([](Host& host) {
    const Sides sides(host);
    Ends ends(host.turns());
    const auto backend = open(host, {kCores});
    ASSERT_TRUE(backend.has_value());
    const Piece piece = sides.piece(kCores, 0, 8_KiB, 1);
    EXPECT_EQ(*(*backend)->submit({&piece, 1}, ends), 1U);
    ASSERT_EQ(ends.all.size(), 1U);
    EXPECT_GT(host.turns().now(), 0ns);
  });
}

TEST(SimBackend, CancelledPieceThatWaits_EndsAsCancelled) {
  test_on_host([](Host& host) {
    const Sides sides(host);
    Ends ends(host.turns());
    const std::atomic<bool> cancelled{true};
    {
      const auto backend = open(host, {kCores}, {.workers = 1});
      ASSERT_TRUE(backend.has_value());
      Piece pieces[] = {sides.piece(kCores, 0, 1_MiB, 1), sides.piece(kCores, 1 << 20, 1_MiB, 2)};
      pieces[1].cancelled = &cancelled;
      EXPECT_EQ(*(*backend)->submit(pieces, ends), 2U);
    }
    ASSERT_EQ(ends.all.size(), 2U);
    EXPECT_TRUE(ends.all[0].outcome.has_value());
    ASSERT_FALSE(ends.all[1].outcome.has_value());
    EXPECT_EQ(ends.all[1].outcome.error().code, ErrorCode::cancelled);
  });
}

TEST(SimBackend, FullQueue_AcceptsFewer) {
  test_on_host([](Host& host) {
    const Sides sides(host);
    Ends ends(host.turns());
    const auto backend = open(host, {kDsa}, {.max_in_flight = 3});
    ASSERT_TRUE(backend.has_value());
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < 5; ++i) pieces.push_back(sides.piece(kDsa, i << 20, 1_MiB, i));
    EXPECT_EQ(*(*backend)->submit(pieces, ends), 3U);
    EXPECT_EQ(host.turns().now(), 3 * 263ns);  // of the calling thread
  });
}

TEST(SimBackend, EnginesThatItDoesNotHave_AreRefused) {
  test_on_host([](Host& host) {
    EXPECT_EQ(open(host, {EngineId{47}}).error().code, ErrorCode::absent);
    EXPECT_EQ(open(host, {kCores, kDsa}).error().code, ErrorCode::invalid);
    EXPECT_EQ(open(host, {}).error().code, ErrorCode::invalid);
    const EngineKind gpu = EngineKind::gpu;
    EXPECT_EQ(open_kinds(host, {&gpu, 1}).error().message, "test has no engine of kind gpu");
  });
}

}  // namespace
}  // namespace headrace::sim
