// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_backend.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/machines.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;

class Log final : public Completion {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    tags.push_back(tag);
    failed += !outcome;
  }
  std::vector<std::uint64_t> tags;
  std::size_t failed = 0;
};

class Fake : public testing::Test {
 protected:
  FakeBackend make(FakeOptions options = {}) {
    options.engines = {kCpuA, kCpuB};
    options.clock = &clock_;
    return FakeBackend(std::move(options));
  }
  // Piece `tag` of 64 bytes, at its own offset.
  Piece piece(std::uint64_t tag, EngineId engine = kCpuA) const {
    return {.from = {&from_, tag * 64, 64_B},
            .to = {&to_, tag * 64, 64_B},
            .engine = engine,
            .tag = tag};
  }
  std::size_t submit(FakeBackend& fake, std::uint64_t count, EngineId engine = kCpuA) {
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < count; ++i) pieces.push_back(piece(next_++, engine));
    return fake.submit(pieces, log_).value_or(99);
  }

  ManualClock clock_;
  std::vector<std::byte> source_ = std::vector<std::byte>(1 << 16, std::byte{1});
  std::vector<std::byte> target_ = std::vector<std::byte>(1 << 16);
  MemoryRange from_{source_, test::kDram};
  MemoryRange to_{target_, test::kHbm};
  Log log_;
  std::uint64_t next_ = 0;
};

TEST_F(Fake, TheDestinationHoldsGarbageUntilTheEnd) {
  auto fake = make();
  submit(fake, 1);
  EXPECT_NE(target_[0], std::byte{0});
  EXPECT_NE(target_[0], source_[0]);
  EXPECT_EQ(fake.poll(), 1u);
  EXPECT_EQ(target_[63], source_[63]);
  EXPECT_EQ(target_[64], std::byte{0});
}

TEST_F(Fake, CompletesByClockAndByPolls) {
  auto fake = make({.delay = Nanoseconds{100}, .polls = 1});
  submit(fake, 2);
  EXPECT_EQ(fake.poll(), 0u);
  EXPECT_EQ(fake.poll(), 0u);
  clock_.advance(Nanoseconds{100});
  EXPECT_EQ(fake.poll(), 2u);
}

TEST_F(Fake, HoldsUntilToldAndFinishesOnDemand) {
  auto fake = make();
  fake.hold(true);
  submit(fake, 3);
  EXPECT_EQ(fake.poll(), 0u);
  EXPECT_EQ(fake.finish(1), 1u);
  EXPECT_EQ(log_.tags, std::vector<std::uint64_t>{0});
  EXPECT_TRUE(fake.writes_to({&to_, 64, 1_B}));
  EXPECT_FALSE(fake.writes_to({&to_, 0, 64_B}));
  fake.hold(false);
  EXPECT_EQ(fake.poll(), 2u);
}

TEST_F(Fake, FailsTheNextOrAsTheScriptSays) {
  auto fake = make({.script = [](const Piece& p, std::uint64_t) -> Status {
    if (p.tag != 4) return {};
    return Unexpected(Error{ErrorCode::io, "scripted"});
  }});
  submit(fake, 6);
  fake.poll();
  EXPECT_EQ(log_.failed, 1u);
  fake.fail_next(kCpuB, 1);
  submit(fake, 2, kCpuB);
  fake.poll();
  EXPECT_EQ(log_.failed, 2u);
  fake.break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  submit(fake, 1, kCpuB);
  fake.poll();
  EXPECT_EQ(log_.failed, 3u);
  EXPECT_EQ(fake.stats().failed, 3u);
}

TEST_F(Fake, AcceptsWhatFitsAndWhatItIsToldTo) {
  auto fake = make({.max_in_flight = 2});
  EXPECT_EQ(submit(fake, 5), 2u);
  EXPECT_EQ(submit(fake, 1), 0u);
  EXPECT_EQ(submit(fake, 1, kCpuB), 1u) << "the bound is per engine";
  fake.poll();
  fake.accept_at_most(1);
  EXPECT_EQ(submit(fake, 2), 1u);
  fake.refuse(kCpuA, Error{ErrorCode::unsupported, "no"});
  const Piece refused = piece(500);
  EXPECT_EQ(fake.submit({&refused, 1}, log_).error().code, ErrorCode::unsupported);
  EXPECT_EQ(fake.stats().most_in_flight.at(kCpuA), 2u);
}

TEST_F(Fake, NotesOverlappingWrites) {
  auto fake = make();
  const Piece twice[] = {piece(0), piece(0)};
  EXPECT_EQ(fake.submit(twice, log_).value_or(0), 2u);
  EXPECT_EQ(fake.violations().size(), 1u);
}

TEST_F(Fake, TheSameSeedGivesTheSameRun) {
  const auto run = [&](std::uint64_t seed) {
    log_ = Log();
    auto fake = make({.max_in_flight = 64,
                      .seed = seed,
                      .jitter = Nanoseconds{100},
                      .reorder = true,
                      .inside_chance = 0.2,
                      .partial_chance = 0.3,
                      .fail_chance = 0.3});
    for (int i = 0; i < 20; ++i) {
      next_ = 0;
      submit(fake, 8);
      clock_.advance(Nanoseconds{30});
      fake.poll();
      fake.finish(SIZE_MAX);
    }
    return std::pair(log_.tags, log_.failed);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace headrace
