// SPDX-License-Identifier: Apache-2.0
#include "headrace/mover.h"

#include <gtest/gtest.h>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::by_hand;
using test::kCpuA;
using test::kCpuB;
using test::Rig;

ErrorCode code(const Transfer& transfer) {
  const auto outcome = transfer.poll();
  EXPECT_TRUE(outcome && !*outcome);
  return outcome && !*outcome ? outcome->error().code : ErrorCode{255};
}

TEST(Mover, DefaultOptions_CopyThroughThePoller) {
  Rig rig;
  const Transfer transfer = rig.copy(0, Rig::kBytes);
  const auto outcome = transfer.wait();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->bytes, Bytes{Rig::kBytes});
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(rig.a, rig.b);
}

TEST(Mover, RouteOfSeveralEngines_IsCutIntoPiecesOfEach) {
  Rig rig({}, by_hand());
  const RoutePolicy halves = [](const Machine&, const RouteRequest& request) -> Result<Route> {
    const Bytes half = request.bytes / 2;
    return Route{.parts = {{0, half, kCpuA}, {half.value, request.bytes - half, kCpuB}}};
  };
  const Transfer transfer = rig.copy(100, 50'001, {.hint = CopyHint::keep, .route = halves});
  const auto outcome = transfer.wait();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_TRUE(rig.copied(100, 50'001));
  EXPECT_EQ(outcome->pieces, 14u);  // 25000 and 25001 bytes in pieces of 4096
  EXPECT_EQ(outcome->engines, (std::vector{kCpuA, kCpuB}));
  std::uint64_t sum = 0;
  for (const Piece& piece : rig.fake->accepted()) {
    EXPECT_LE(piece.to.length, 4_KiB);
    EXPECT_EQ(piece.from.offset, piece.to.offset);
    EXPECT_EQ(piece.hint, CopyHint::keep);
    EXPECT_EQ(piece.engine, piece.to.offset < 100 + 25'000 ? kCpuA : kCpuB);
    sum += piece.to.length.value;
  }
  EXPECT_EQ(sum, 50'001u);
  EXPECT_TRUE(rig.fake->violations().empty());
}

TEST(Mover, Pieces_AreNoLargerThanTheEnginesMaximum) {
  Rig rig({.max_piece = 1000_B}, by_hand());
  EXPECT_EQ(rig.copy(0, 10'000).wait()->pieces, 10u);
}

TEST(Mover, InvalidOptions_FailEveryMoveWithTheReason) {
  const auto refused = [](auto change) {
    MoverOptions options = by_hand();
    change(options);
    Rig rig({}, options);
    const Transfer one = rig.copy(0, 100);
    const MovePair pair{rig.target(0, 100), rig.source(0, 100)};
    const Transfer batch = rig.mover->copy({&pair, 1});
    return std::pair(code(one), code(batch));
  };
  const std::pair both(ErrorCode::invalid, ErrorCode::invalid);
  EXPECT_EQ(refused([](MoverOptions& o) { o.piece = 0_B; }), both);
  EXPECT_EQ(refused([](MoverOptions& o) { o.shutdown_bound = Nanoseconds{0}; }), both);
  EXPECT_EQ(refused([](MoverOptions& o) { o.shutdown_bound = Nanoseconds{-1}; }), both);
  EXPECT_EQ(refused([](MoverOptions& o) { o.route = {}; }), both);
  Rig rig({}, by_hand());
  EXPECT_EQ(code(rig.copy(0, 100, {.route = RoutePolicy{}})), ErrorCode::invalid);
}

TEST(Mover, LargestAndSmallestOptions_Work) {
  constexpr Bytes kAll{~std::uint64_t{0}};
  for (const Bytes bound : {0_B, Bytes{std::uint64_t{1} << 62}, kAll}) {
    for (const Bytes piece : {1_KiB, Bytes{std::uint64_t{1} << 63}, kAll}) {
      MoverOptions options = by_hand(piece, bound);
      options.shutdown_bound = Nanoseconds::max();
      Rig rig({}, options);
      const Transfer transfer = rig.copy(1, 50'000);
      EXPECT_GE(rig.mover->stats().in_flight_pieces, 1u);
      ASSERT_TRUE(transfer.wait()) << piece.value << " " << bound.value;
      EXPECT_TRUE(rig.copied(1, 50'000));
    }
  }
}

TEST(Mover, EmptyMove_IsDoneAtOnce) {
  Rig rig({}, by_hand());
  const Transfer transfer = rig.copy(5, 0);
  ASSERT_TRUE(transfer.done());
  EXPECT_EQ(transfer.wait(Nanoseconds{0})->bytes, 0_B);
  EXPECT_EQ(rig.mover->stats().transfers, 1u);
  EXPECT_TRUE(Transfer().done());
  EXPECT_EQ(Transfer().wait()->bytes, 0_B);
}

TEST(Mover, InvalidRequest_FailsWithTheReason) {
  Rig rig({}, by_hand());
  Mover& mover = *rig.mover;
  EXPECT_EQ(code(mover.copy(Extent{}, rig.source(0, 10))), ErrorCode::invalid);
  EXPECT_EQ(code(mover.copy(rig.target(0, 10), Extent{})), ErrorCode::invalid);
  EXPECT_EQ(code(mover.copy(rig.target(0, 10), rig.source(0, 11))), ErrorCode::invalid);
  EXPECT_EQ(code(rig.copy(Rig::kBytes - 9, 10)), ErrorCode::invalid);
  EXPECT_EQ(code(rig.copy(~std::uint64_t{0} - 4, 10)), ErrorCode::invalid);
  EXPECT_EQ(code(mover.copy(rig.source(9, 10), rig.source(0, 10))), ErrorCode::invalid);
  MemoryRange same_bytes(rig.a, test::kHbm);
  EXPECT_EQ(code(mover.copy({&same_bytes, 9, 10_B}, rig.source(0, 10))), ErrorCode::invalid);
  EXPECT_EQ(rig.fake->stats().accepted, 0u);
  EXPECT_EQ(mover.stats().failed, 7u);
  EXPECT_TRUE(mover.copy(rig.source(10, 10), rig.source(0, 10)).wait());
}

TEST(Mover, NoEngine_FailsWithTheReason) {
  Rig rig({}, by_hand());
  MemoryRange disk(rig.b, test::kDisk);
  EXPECT_EQ(code(rig.mover->copy({&disk, 0, 10_B}, rig.source(0, 10),
                                 {.route = test::by_engine(test::kSsd)})),
            ErrorCode::absent);
  const RoutePolicy none = [](const Machine&, const RouteRequest&) -> Result<Route> {
    return Unexpected(Error{ErrorCode::absent, "no way"});
  };
  EXPECT_EQ(code(rig.copy(0, 10, {.route = none})), ErrorCode::absent);
}

TEST(Mover, UndrivenEngine_FailsWithTheBackendsReason) {
  Machine machine = test::small_machine();
  machine.engines = {{.id = EngineId{0},
                      .kind = EngineKind::dsa,
                      .name = "dsa0",
                      .home = test::kDram,
                      .reason = "test"}};
  const auto backends = Backends::open(machine);
  ASSERT_TRUE(backends) << backends.error().message;
  ASSERT_EQ(backends->skipped().size(), 1u);
  Mover mover(machine, *backends);
  std::vector<std::byte> bytes(20);
  const MemoryRange range(bytes, test::kDram);
  const auto outcome = mover.copy(whole(range).part(0, 10_B), whole(range).part(10, 10_B)).wait();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::absent);
  EXPECT_NE(outcome.error().message.find(backends->skipped()[0]), std::string::npos)
      << outcome.error().message;
}

TEST(Mover, RouteToUndrivenEngine_UsesAnotherEngine) {
  Rig rig({}, by_hand());
  const auto outcome = rig.copy(0, 10, {.route = test::by_engine(EngineId{77})}).wait();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->engines, std::vector{kCpuA});
}

TEST(Mover, RouteWithGapsOrOverlaps_IsRefused) {
  Rig rig({}, by_hand());
  const std::vector<std::vector<RoutePart>> bad = {
      {},
      {{0, 9_B, kCpuA}},
      {{0, 11_B, kCpuA}},
      {{1, 9_B, kCpuA}},
      {{0, 5_B, kCpuA}, {6, 4_B, kCpuA}},
      {{0, 5_B, kCpuA}, {6, 5_B, kCpuA}},
      {{0, 5_B, kCpuA}, {4, 6_B, kCpuA}},
      {{0, 5_B, kCpuA}, {5, Bytes{~std::uint64_t{0}}, kCpuA}}};
  for (const auto& parts : bad) {
    const RoutePolicy policy = [&](const Machine&, const RouteRequest&) -> Result<Route> {
      return Route{.parts = parts};
    };
    EXPECT_EQ(code(rig.copy(0, 10, {.route = policy})), ErrorCode::invalid);
  }
}

TEST(Mover, RoutePolicy_IsCalledOncePerLinkAndSize) {
  int asked = 0;
  MoverOptions options = by_hand();
  options.route = [&](const Machine& machine, const RouteRequest& request) {
    ++asked;
    return test::by_engine(kCpuB)(machine, request);
  };
  Rig rig({}, options);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(rig.copy(0, 4096).wait());
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(rig.copy(0, 4097).wait());
  EXPECT_EQ(asked, 2);
}

TEST(Mover, Link_KeepsItsBoundOfBytesInFlight) {
  Rig rig({.max_in_flight = 100}, by_hand(4_KiB, 10'000_B));
  const Transfer transfer = rig.copy(0, 100'000);
  EXPECT_EQ(rig.fake->in_flight(), 2u);
  EXPECT_TRUE(transfer.wait());
  const Bytes most = rig.fake->stats().most_link_bytes.at({test::kDram, test::kHbm});
  EXPECT_EQ(most.value, 4096u + 4096u + 1696u);  // with the last piece
}

TEST(Mover, PieceAboveTheLinksBound_IsInFlightAlone) {
  Rig rig({}, by_hand(4_KiB, 100_B));
  EXPECT_TRUE(rig.copy(0, 20'000).wait());
  EXPECT_EQ((rig.fake->stats().most_link_bytes.at({test::kDram, test::kHbm})), 4096_B);
}

// Small pieces of another engine do not pass a waiting large one forever.
TEST(Mover, LargePiece_IsNotPassedForever) {
  Rig rig({.max_in_flight = 100}, by_hand(16_KiB, 16_KiB));
  std::vector<Transfer> small;
  for (std::uint64_t i = 0; i < 32; ++i) {
    small.push_back(rig.copy(i * 1024, 1024, {.route = test::by_engine(kCpuB)}));
  }
  const Transfer large = rig.copy(1 << 19, 16 << 10);
  while (!large.done()) {
    ASSERT_GT(rig.fake->finish(1), 0u);
    const auto at = small.size() * 1024;
    small.push_back(rig.copy(at, 1024, {.route = test::by_engine(kCpuB)}));
    ASSERT_LT(small.size(), 200u);
  }
  for (const Transfer& transfer : small) EXPECT_TRUE(transfer.wait());
}

TEST(Mover, Priorities_DemandBeforePrefetchBeforeMigration) {
  Rig rig({.max_in_flight = 1}, by_hand(4_KiB, 4_KiB));
  const Transfer first = rig.copy(0, 4096);
  const Transfer migration = rig.copy(4096, 4096, {.priority = Priority::migration});
  const Transfer prefetch = rig.copy(8192, 4096, {.priority = Priority::prefetch});
  const Transfer demand = rig.copy(12288, 4096);
  EXPECT_TRUE(migration.wait());
  EXPECT_TRUE(first.done() && prefetch.done() && demand.done());
  std::vector<std::uint64_t> order;
  for (const Piece& piece : rig.fake->accepted()) order.push_back(piece.to.offset);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 12288, 8192, 4096}));
}

TEST(Mover, PromotedMove_PassesItsOldClass) {
  Rig rig({.max_in_flight = 1}, by_hand(4_KiB, 4_KiB));
  const Transfer first = rig.copy(0, 4096);
  const Transfer prefetch = rig.copy(8192, 4096, {.priority = Priority::prefetch});
  const Transfer late = rig.copy(16384, 12288, {.priority = Priority::prefetch});
  late.promote(Priority::migration);  // less urgent: no effect
  late.promote(Priority::demand);
  const Transfer demand = rig.copy(12288, 4096);
  EXPECT_TRUE(prefetch.wait());
  std::vector<std::uint64_t> order;
  for (const Piece& piece : rig.fake->accepted()) order.push_back(piece.to.offset);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 16384, 20480, 24576, 12288, 8192}));
  EXPECT_TRUE(late.wait() && demand.wait());
  late.promote(Priority::demand);
  Transfer().promote(Priority::demand);
}

TEST(Mover, WaitingLowerClass_GetsEveryEighthPiece) {
  Rig rig({.max_in_flight = 1}, by_hand(1_KiB, 1_KiB));
  const Transfer demand = rig.copy(0, 80 << 10);
  const Transfer prefetch = rig.copy(80 << 10, 80 << 10, {.priority = Priority::prefetch});
  const Transfer migration = rig.copy(160 << 10, 80 << 10, {.priority = Priority::migration});
  EXPECT_TRUE(migration.wait() && prefetch.wait() && demand.wait());
  const auto accepted = rig.fake->accepted();
  std::size_t counts[3] = {};
  for (std::size_t i = 0; i < 80; ++i) ++counts[accepted[i].to.offset / (80 << 10)];
  EXPECT_GE(counts[1], 9u);
  EXPECT_GE(counts[2], 9u);
  EXPECT_GE(counts[0], 58u);
}

// The scarce resource may also be an engine that two links share.
TEST(Mover, SharedEngine_ServesAllLinks) {
  Rig rig({.max_in_flight = 1}, by_hand(1_KiB, 64_KiB));
  const Transfer demand = rig.copy(0, 100 << 10);
  const Transfer back = rig.mover->copy(rig.source(200 << 10, 4096), rig.target(200 << 10, 4096),
                                        {.priority = Priority::migration});
  while (!back.done()) ASSERT_GT(rig.mover->poll(), 0u);
  EXPECT_FALSE(demand.done());
  EXPECT_TRUE(demand.wait());
}

// None of our pieces is in flight, so no completion will wake a thread.
TEST(Mover, FullEngine_IsAskedAgainByPoll) {
  Rig rig({}, by_hand());
  rig.fake->accept_at_most(0);
  const Transfer transfer = rig.copy(0, 10'000);
  EXPECT_EQ(rig.mover->poll(), 0u);
  EXPECT_FALSE(transfer.done());
  rig.fake->accept_at_most(std::nullopt);
  EXPECT_TRUE(transfer.wait());
}

TEST(Mover, FullEngine_IsAskedAgainByThePoller) {
  Rig rig({.own_thread = true});
  rig.fake->accept_at_most(0);
  const Transfer transfer = rig.copy(0, 10'000);
  EXPECT_FALSE(transfer.done());
  rig.fake->accept_at_most(std::nullopt);
  EXPECT_TRUE(transfer.wait());
}

TEST(Mover, FailedPiece_IsRetriedOnAnotherEngine) {
  Rig rig({}, by_hand());
  rig.fake->fail_next(kCpuA, 3);
  const auto outcome = rig.copy(0, 40'000).wait();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->retries, 3u);
  EXPECT_EQ(outcome->engines, (std::vector{kCpuA, kCpuB}));
  EXPECT_TRUE(rig.copied(0, 40'000));
  EXPECT_EQ(rig.mover->stats().retries, 3u);
}

TEST(Mover, EngineWhoseSubmitFails_IsReplaced) {
  Rig rig({}, by_hand());
  rig.fake->refuse(kCpuA, Error{ErrorCode::unsupported, "not today"});
  const auto outcome = rig.copy(0, 40'000).wait();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->engines, std::vector{kCpuB});
  EXPECT_TRUE(rig.copied(0, 40'000));
}

TEST(Mover, AllEnginesFail_OutcomeIsTheLastError) {
  Rig rig({}, by_hand());
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "first"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "second"});
  const auto outcome = rig.copy(0, 4096).wait();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "second");
  EXPECT_EQ(rig.fake->stats().accepted, 2u);
  EXPECT_EQ(rig.mover->stats().failed, 1u);
  EXPECT_EQ(rig.mover->stats().in_flight_pieces, 0u);
}

TEST(Mover, InvalidPiece_IsNotRetried) {
  Rig rig({}, by_hand());
  rig.fake->break_engine(kCpuA, Error{ErrorCode::invalid, "nonsense"});
  EXPECT_EQ(rig.copy(0, 4096).wait().error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.fake->stats().accepted, 1u);
}

TEST(Mover, FailedMove_IsDoneOnceNothingIsInFlight) {
  Rig rig({.max_in_flight = 4}, by_hand());
  rig.fake->fail_next(kCpuA, 1);
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  const Transfer transfer = rig.copy(0, 100'000);
  EXPECT_EQ(rig.fake->in_flight(), 4u);
  rig.fake->finish(1);  // fails, and is retried on the other engine
  while (rig.fake->in_flight() > 0) {
    EXPECT_FALSE(transfer.done());
    rig.fake->finish(1);
  }
  ASSERT_TRUE(transfer.done());
  EXPECT_EQ(code(transfer), ErrorCode::io);
  EXPECT_EQ(rig.mover->stats().queued_pieces, 0u);
  EXPECT_LT(rig.fake->stats().accepted, 25u);
}

TEST(Mover, Cancel_DropsQueuedPiecesAndWaitsForThoseInFlight) {
  Rig rig({.max_in_flight = 2}, by_hand());
  const Transfer transfer = rig.copy(0, 40'000);
  const Transfer other = rig.copy(40'000, 4096);
  transfer.cancel();
  EXPECT_FALSE(transfer.done());
  EXPECT_TRUE(rig.fake->writes_to(rig.target(0, 40'000)));
  rig.fake->finish(1);
  EXPECT_FALSE(transfer.done());
  rig.fake->finish(1);
  EXPECT_EQ(code(transfer), ErrorCode::cancelled);
  EXPECT_FALSE(rig.fake->writes_to(rig.target(0, 40'000)));
  EXPECT_TRUE(other.wait());
  EXPECT_EQ(rig.fake->stats().accepted, 3u);
  EXPECT_EQ(rig.mover->stats().cancelled, 1u);
  other.cancel();
  EXPECT_TRUE(*other.poll());
}

TEST(Mover, QueuedMove_IsCancelledAtOnce) {
  Rig rig({.max_in_flight = 1}, by_hand());
  const Transfer first = rig.copy(0, 4096);
  const Transfer queued = rig.copy(4096, 4096);
  EXPECT_TRUE(first.begun());
  EXPECT_FALSE(queued.begun());
  queued.cancel();
  EXPECT_EQ(code(queued), ErrorCode::cancelled);
  EXPECT_TRUE(queued.begun() && Transfer{}.begun()) << "it is done";
  EXPECT_TRUE(first.wait());
}

// The head of the queue did not fit; without it the pieces behind it do.
TEST(Mover, CancelOfABlockingPiece_LetsOthersContinue) {
  Rig rig({}, by_hand(8_KiB, 8_KiB));
  const Transfer first = rig.copy(0, 4096);
  const Transfer large = rig.copy(8192, 8192);
  const Transfer small = rig.copy(32768, 4096, {.priority = Priority::prefetch});
  EXPECT_EQ(rig.fake->in_flight(), 1u);
  large.cancel();
  EXPECT_EQ(rig.fake->in_flight(), 2u);
  EXPECT_TRUE(first.wait() && small.wait());
}

TEST(Mover, Destructor_CancelsAndWaits) {
  Rig rig({.max_in_flight = 2, .polls = 5}, by_hand());
  int told = 0;
  const Transfer transfer = rig.copy(0, 40'000);
  const Transfer queued = rig.copy(40'000, 4096);
  for (const Transfer& t : {transfer, queued}) {
    t.on_done([&](const Result<MoveStats>& outcome) {
      ++told;
      EXPECT_EQ(outcome.error().code, ErrorCode::cancelled);
      EXPECT_EQ(code(rig.copy(50'000, 10)), ErrorCode::cancelled) << "too late for new ones";
    });
  }
  rig.mover.reset();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(rig.fake->in_flight(), 0u);
  EXPECT_EQ(code(transfer), ErrorCode::cancelled);
  EXPECT_EQ(transfer.wait().error().code, ErrorCode::cancelled);
  transfer.cancel();
  transfer.promote(Priority::demand);
  EXPECT_TRUE(transfer.event_fd());
}

// The process is stopped for an hour while the Mover waits for pieces in flight, which then must
// still get their time.
TEST(Mover, PausedProcess_DoesNotUseUpTheShutdownBound) {
  Rig rig({}, by_hand());
  rig.fake->hold(true);
  const Transfer transfer = rig.copy(0, 4096);
  int sleeps = 0;
  rig.waiting.asleep = [&] {
    if (++sleeps == 1) rig.clock.advance(std::chrono::hours{1});
    if (sleeps == 5) rig.fake->hold(false);
  };
  rig.mover.reset();
  EXPECT_GE(sleeps, 5);
  EXPECT_EQ(code(transfer), ErrorCode::cancelled);
}

TEST(MoverDeathTest, DestroyedByItsOwnCallback_Aborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Rig rig({}, by_hand());
        const Transfer transfer = rig.copy(0, 10);
        transfer.on_done([&](const auto&) { rig.mover.reset(); });
        rig.mover->poll();
      },
      "callback");
}

// Pieces that complete inside submit() must not grow the stack: 100 000 frames would not fit.
TEST(Mover, ManyInlinePieces_KeepTheStackFlat) {
  Rig rig({.inside_chance = 1, .log = false}, by_hand(8_B, 64_KiB));
  EXPECT_EQ(rig.copy(0, 800'000).wait()->pieces, 100'000u);
  EXPECT_TRUE(rig.copied(0, 800'000));
}

TEST(Mover, ChainOfCallbacks_KeepsTheStackFlat) {
  Rig rig({.inside_chance = 1, .log = false}, by_hand());
  std::uint64_t left = 100'000;
  std::function<void(const Result<MoveStats>&)> next = [&](const Result<MoveStats>& outcome) {
    EXPECT_TRUE(outcome);
    if (left-- > 0) rig.copy(left % 1000 * 64, 64).on_done(next);
  };
  next(MoveStats{});
  EXPECT_EQ(rig.mover->stats().transfers, 100'000u);
}

TEST(Mover, ChainOfCancellations_KeepsTheStackFlat) {
  Rig rig({.max_in_flight = 1, .log = false}, by_hand());
  const Transfer first = rig.copy(0, 8);
  std::vector<Transfer> queued;
  for (int i = 0; i < 50'000; ++i) queued.push_back(rig.copy(8, 8));
  for (std::size_t i = 0; i + 1 < queued.size(); ++i) {
    queued[i].on_done([&, i](const auto&) { queued[i + 1].cancel(); });
  }
  queued.front().cancel();
  EXPECT_EQ(code(queued.back()), ErrorCode::cancelled);
  EXPECT_TRUE(first.wait());
}

TEST(Mover, Stats_CountAndTimeMoves) {
  Rig rig({.max_in_flight = 1, .delay = std::chrono::milliseconds{1}}, by_hand());
  const Transfer first = rig.copy(0, 4096);
  const Transfer second = rig.copy(4096, 8192);
  EXPECT_EQ(rig.mover->stats().in_flight_pieces, 1u);
  EXPECT_EQ(rig.mover->stats().queued_pieces, 2u);
  ASSERT_TRUE(second.wait());
  EXPECT_EQ(first.poll()->value().queued, Nanoseconds{0});
  EXPECT_GE(second.poll()->value().queued, std::chrono::milliseconds{1});
  EXPECT_GE(second.poll()->value().total, std::chrono::milliseconds{3});
  const MoverStats stats = rig.mover->stats();
  EXPECT_EQ(stats.transfers, 2u);
  EXPECT_EQ(stats.pieces, 3u);
  EXPECT_EQ(stats.bytes, 12_KiB);
  EXPECT_EQ(stats.in_flight_pieces + stats.queued_pieces + stats.failed, 0u);
}

}  // namespace
}  // namespace headrace
