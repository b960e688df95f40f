// SPDX-License-Identifier: Apache-2.0
#include "move/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;

// Bytes that no CPU can address, like a file's.
class Unaddressable final : public Object {
 public:
  Unaddressable(Bytes size, NodeId node) : Object(size, node, nullptr) {}
};

Route by(EngineId engine, std::uint64_t length) {
  return {.parts = {{0, Bytes{length}, engine}}, .reason = "test"};
}

// A scheduler over two fakes, used only for their capabilities.
class MoveSchedulerTest : public testing::Test {
 protected:
  MoveSchedulerTest() {
    backends_.add(
        std::make_unique<FakeBackend>(FakeOptions{.engines = {kCpuA, kCpuB}, .max_in_flight = 4}));
    backends_.add(
        std::make_unique<FakeBackend>(FakeOptions{.engines = {test::kSsd}, .max_in_flight = 100}));
    scheduler_.emplace(machine_, backends_, 16_KiB, 64_KiB);
  }

  // Pieces left in flight end with the test.
  ~MoveSchedulerTest() override {
    for (const auto& move : moves_) move->scheduling.self = nullptr;
  }

  std::shared_ptr<Move> open(const Object& from, std::uint64_t offset, std::uint64_t length,
                             const Route& route, Priority priority = Priority::demand) {
    auto move = std::make_shared<Move>(nullptr, Extent{&to_, 0, Bytes{length}},
                                       Extent{&from, offset, Bytes{length}},
                                       MoveOptions{.priority = priority}, Nanoseconds{0});
    EXPECT_TRUE(scheduler_->open(move, scheduler_->link(from.node(), to_.node()), route));
    moves_.push_back(move);
    return move;
  }
  std::vector<Segment*> take(std::size_t most = 100) {
    std::vector<Segment*> segments(most);
    TurnTime time(clock_);
    segments.resize(scheduler_->take(segments, inline_left_, time));
    return segments;
  }
  void settle(Segment& segment, std::optional<Error> failure = {}) {
    segment.failure = std::move(failure);
    scheduler_->settle(segment);
  }
  std::vector<const Move*> ended() {
    std::vector<const Move*> all;
    for (const Move* move = scheduler_->take_ended(); move != nullptr; move = move->next_ended) {
      all.push_back(move);
    }
    return all;
  }
  std::array<std::uint64_t, 2> share_beside_demand(std::uint64_t piece, std::uint64_t lower);
  static Segment* in_flight(Move& move) {
    Segment* segment = move.scheduling.segments.front();
    while (segment != nullptr && !segment->in_flight) segment = MoveSegments::next(*segment);
    return segment;
  }
  static std::vector<std::uint64_t> lengths(const std::vector<Segment*>& segments) {
    std::vector<std::uint64_t> all;
    for (const Segment* segment : segments) all.push_back(segment->length);
    return all;
  }

  const Machine machine_ = test::small_machine();
  ManualClock clock_;
  Backends backends_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
  std::vector<std::byte> other_ = std::vector<std::byte>(1 << 20);
  MemoryRange from_{bytes_, test::kDram};
  MemoryRange to_{other_, test::kHbm};
  std::vector<std::shared_ptr<Move>> moves_;
  std::size_t inline_left_ = 16;
  std::optional<MoveScheduler> scheduler_;
};

// Only the first piece of a file's extent begins at an unaligned offset.
TEST_F(MoveSchedulerTest, FileSegment_IsCutAtBlocksOfTheFile) {
  const Unaddressable file(1_MiB, test::kDram);
  const auto move = open(file, 100, 40'000, by(kCpuA, 40'000));
  EXPECT_EQ(scheduler_->stats().queued_pieces, 3u);
  const auto segments = take();
  EXPECT_EQ(lengths(segments), (std::vector<std::uint64_t>{16284, 16384, 7332}));
  for (const Segment* segment : segments) {
    EXPECT_TRUE(segment->offset == 0 || (100 + segment->offset) % 4096 == 0);
  }
  scheduler_->cancel(*move);
}

TEST_F(MoveSchedulerTest, AnEngine_GetsNoMorePiecesThanItTakes) {
  for (std::uint64_t i = 0; i < 6; ++i) open(from_, i * 1000, 1000, by(kCpuA, 1000));
  const auto taken = take();
  ASSERT_EQ(taken.size(), 4u);
  settle(*taken.front());
  EXPECT_EQ(take().size(), 1u);
}

TEST_F(MoveSchedulerTest, SegmentOfOnePiece_IsNotCut) {
  const Unaddressable file(1_MiB, test::kDram);
  const auto move = open(file, 100, 16384, by(kCpuA, 16384));
  EXPECT_EQ(lengths(take()), (std::vector<std::uint64_t>{16384}));
  scheduler_->cancel(*move);
}

TEST_F(MoveSchedulerTest, RouteOfTwoEngines_AdvancesBothEqually) {
  const std::uint64_t half = 64 << 10;
  Route route = by(kCpuA, half);
  route.parts.push_back({half, Bytes{half}, kCpuB});
  const auto move = open(from_, 0, 2 * half, route);
  std::size_t a = 0;
  for (const Segment* segment : take()) a += segment->queue->engine->id == kCpuA;
  EXPECT_EQ(a, 2u) << "half of what fits into 64 KiB";
  scheduler_->cancel(*move);
}

TEST_F(MoveSchedulerTest, PiecesPutBack_ComeAgainInOrder) {
  const auto move = open(from_, 0, 64 << 10, by(kCpuA, 64 << 10));
  const auto segments = take();
  ASSERT_EQ(segments.size(), 4u);
  for (std::size_t i = 4; i-- > 1;) scheduler_->put_back(*segments[i]);
  EXPECT_TRUE(move->scheduling.first_taken);
  EXPECT_TRUE(move->begun);
  scheduler_->put_back(*segments[0]);
  EXPECT_FALSE(move->begun);
  EXPECT_TRUE(ended().empty());
  EXPECT_FALSE(move->scheduling.first_taken) << "none was accepted";
  std::uint64_t at = 0;
  for (const Segment* segment : take()) {
    EXPECT_EQ(segment->offset, at);
    at += segment->length;
  }
  EXPECT_EQ(at, 64u << 10);
  scheduler_->cancel(*move);
}

TEST_F(MoveSchedulerTest, StalledEngine_ContinuesAfterACompletion) {
  const auto move = open(from_, 0, 64 << 10, by(kCpuA, 64 << 10));
  const auto segments = take(2);
  EngineState& engine = *segments[0]->queue->engine;
  scheduler_->put_back(*segments[1]);
  scheduler_->stall(engine, segments[1]->seen);
  EXPECT_TRUE(take().empty());
  settle(*segments[0]);
  EXPECT_EQ(take().size(), 3u);
  scheduler_->cancel(*move);
}

// A completion came between the refusal and stall(): no other completion would wake the engine.
TEST_F(MoveSchedulerTest, StallAfterACompletion_IsIgnored) {
  const auto move = open(from_, 0, 64 << 10, by(kCpuA, 64 << 10));
  const auto segments = take(2);
  EngineState& engine = *segments[0]->queue->engine;
  const std::uint64_t seen = segments[1]->seen;
  settle(*segments[0]);
  scheduler_->put_back(*segments[1]);
  scheduler_->stall(engine, seen);
  EXPECT_EQ(take().size(), 3u);
  scheduler_->cancel(*move);
}

TEST_F(MoveSchedulerTest, StallWithNothingInFlight_NeedsAPoll) {
  const auto move = open(from_, 0, 4096, by(kCpuA, 4096));
  const auto segments = take();
  EngineState& engine = *segments[0]->queue->engine;
  const std::uint64_t seen = segments[0]->seen;
  scheduler_->put_back(*segments[0]);
  scheduler_->stall(engine, seen);
  EXPECT_TRUE(take().empty());
  EXPECT_TRUE(scheduler_->needs_poll());
  scheduler_->retry_stalled();
  EXPECT_FALSE(scheduler_->needs_poll());
  EXPECT_EQ(take().size(), 1u);
  EXPECT_TRUE(scheduler_->needs_poll()) << "the fake does not complete by itself";
}

// The bound is 64 KiB; an eighth of it is less than a piece.
TEST_F(MoveSchedulerTest, StorageWithDemand_LimitsOtherClassesInFlight) {
  const Unaddressable file(1_MiB, test::kDisk);
  const auto plan = open(file, 0, 1 << 20, by(test::kSsd, 1 << 20), Priority::prefetch);
  const auto alone = take();
  EXPECT_EQ(alone.size(), 4u) << "the whole bound";
  for (Segment* segment : alone) settle(*segment);
  for (int i = 0; i < 20; ++i) {
    const auto read = open(file, 0, 4096, by(test::kSsd, 4096));
    const auto beside = take();
    ASSERT_EQ(beside.size(), i == 0 ? 2u : 1u) << "one piece of the plan, until it has ended";
    EXPECT_EQ(beside[0]->move, read.get());
    settle(*beside[0]);
    if (i == 0) continue;
    EXPECT_EQ(take().size(), 0u);
  }
  // When four times the bound was submitted after the last demand, the whole bound is available
  // again.
  for (int piece = 1; piece < 16; ++piece) {
    settle(*in_flight(*plan));
    EXPECT_EQ(take().size(), 1u) << piece;
  }
  settle(*in_flight(*plan));
  EXPECT_EQ(take().size(), 4u);
  scheduler_->cancel(*plan);
}

// The bytes that two classes get of a disk that serves demand all the time: one with pieces of
// `piece` bytes, and a lower one with pieces of `lower` bytes.
std::array<std::uint64_t, 2> MoveSchedulerTest::share_beside_demand(std::uint64_t piece,
                                                                    std::uint64_t lower) {
  const Unaddressable file(1_MiB, test::kDisk);
  const auto start = [&](std::uint64_t length, Priority priority) {
    return open(file, 0, length, by(test::kSsd, length), priority);
  };
  std::array<std::uint64_t, 2> bytes{};
  std::deque<Segment*> flying;
  for (int i = 0; i < 16; ++i) start(4096, Priority::demand);
  for (int i = 0; i < 4; ++i) {
    start(piece, Priority::prefetch);
    start(lower, Priority::migration);
  }
  for (int i = 0; i < 4000; ++i) {
    for (Segment* segment : take()) flying.push_back(segment);
    Segment* const oldest = flying.front();
    flying.pop_front();
    const Priority priority = oldest->move->scheduling.priority;
    if (priority != Priority::demand) bytes[priority == Priority::migration] += oldest->length;
    const std::uint64_t length = oldest->length;
    settle(*oldest);
    start(length, priority);
  }
  scheduler_->cancel_all();
  for (Segment* segment : flying) settle(*segment);
  return bytes;
}

TEST_F(MoveSchedulerTest, ShortPiecesBesideDemand_DoNotStarveLongOnes) {
  const auto [prefetch, migration] = share_beside_demand(16384, 4096);
  EXPECT_GT(prefetch, 100'000u);
  EXPECT_GT(migration, 100'000u);
}

TEST_F(MoveSchedulerTest, TwoDueClassesBesideDemand_NeitherStarves) {
  const auto [prefetch, migration] = share_beside_demand(16384, 16384);
  EXPECT_GT(prefetch, 500'000u);
  EXPECT_GT(migration, 500'000u);
}

TEST_F(MoveSchedulerTest, HeldBackBytes_StayExactThroughRefusalFailureAndPromotion) {
  const Unaddressable file(1_MiB, test::kDisk);
  const auto read = open(file, 0, 4096, by(test::kSsd, 4096));
  const auto plan = open(file, 0, 1 << 18, by(test::kSsd, 1 << 18), Priority::prefetch);
  auto taken = take();
  ASSERT_EQ(taken.size(), 2u);
  settle(*taken[0]);
  scheduler_->put_back(*taken[1]);
  ASSERT_EQ((taken = take()).size(), 1u);
  EXPECT_EQ(take().size(), 0u);
  scheduler_->promote(*plan, Priority::demand);
  settle(*taken[0], Error{ErrorCode::io, "test"});
  EXPECT_EQ(ended().size(), 2u) << "no other engine reads it, so the plan has failed";
  const auto next = open(file, 0, 1 << 18, by(test::kSsd, 1 << 18), Priority::prefetch);
  EXPECT_EQ(take().size(), 1u) << "nothing of the first is counted any more";
  scheduler_->cancel(*next);
}

TEST_F(MoveSchedulerTest, PromotedPlan_DoesNotCountAsDemand) {
  const Unaddressable file(1_MiB, test::kDisk);
  const auto late = open(file, 0, 4096, by(test::kSsd, 4096), Priority::prefetch);
  open(file, 0, 1 << 19, by(test::kSsd, 1 << 19), Priority::prefetch);
  scheduler_->promote(*late, Priority::demand);
  EXPECT_EQ(take().size(), 4u);
  scheduler_->cancel_all();
}

TEST_F(MoveSchedulerTest, DemandOnStorage_HoldsBackNoOtherEngine) {
  const auto plan = open(from_, 0, 1 << 20, by(kCpuA, 1 << 20), Priority::prefetch);
  const auto read = open(from_, 0, 4096, by(kCpuA, 4096));
  EXPECT_EQ(take().size(), 4u) << "as many as the engine takes";
  scheduler_->cancel_all();
}

TEST_F(MoveSchedulerTest, CancelAll_EndsMovesWithNothingInFlight) {
  const auto flying = open(from_, 0, 4096, by(kCpuA, 4096));
  const auto segments = take();
  const auto queued = open(from_, 0, 4096, by(kCpuA, 4096));
  scheduler_->cancel_all();
  EXPECT_EQ(ended(), std::vector<const Move*>{queued.get()});
  scheduler_->put_back(*segments[0]);
  EXPECT_EQ(ended(), std::vector<const Move*>{flying.get()});
  EXPECT_EQ(scheduler_->stats().cancelled, 2u);
}

}  // namespace
}  // namespace headrace
