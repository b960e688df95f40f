// SPDX-License-Identifier: Apache-2.0
// How the Mover's work is shared: which thread submits and copies how much, and what happens to the
// rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/mutex.h"
#include "move/mover_testing.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::kCpuA;
using test::kCpuB;

// Copies inside submit(), and records the thread and the state of the other backend.
class InlineBackend final : public Backend {
 public:
  explicit InlineBackend(const FakeBackend& other) : other_(other) {
    facts_.name = "inline";
    facts_.engines = {kCpuB};
    facts_.max_piece = 1_MiB;
    facts_.max_in_flight = 64;
    facts_.inline_below = 2_MiB;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      std::memcpy(piece.to.memory(), piece.from.memory(), piece.to.length.value);
      {
        MutexLock lock(mutex_);
        threads_.push_back(std::this_thread::get_id());
        others_.push_back(other_.in_flight());
      }
      completion.complete(piece.tag, {});
    }
    return pieces.size();
  }
  std::vector<std::thread::id> threads() const {
    MutexLock lock(mutex_);
    return threads_;
  }
  // The pieces in flight in the other backend at each copy.
  std::vector<std::size_t> others() const {
    MutexLock lock(mutex_);
    return others_;
  }

 private:
  Capabilities facts_;
  const FakeBackend& other_;
  mutable Mutex mutex_;
  std::vector<std::thread::id> threads_ GUARDED_BY(mutex_);
  std::vector<std::size_t> others_ GUARDED_BY(mutex_);
};

// Engine A's backend copies on request, engine B's inline.
class MoverVisits : public testing::Test {
 protected:
  static constexpr std::uint64_t kBound = 8192;

  void open(bool poller) {
    auto fake = std::make_unique<FakeBackend>(
        FakeOptions{.engines = {kCpuA}, .max_in_flight = 1000, .own_thread = true});
    fake_ = fake.get();
    fake_->hold(true);
    auto inlined = std::make_unique<InlineBackend>(*fake_);
    inline_ = inlined.get();
    backends_.add(std::move(fake));
    backends_.add(std::move(inlined));
    MoverOptions options = test::by_hand(1_MiB, Bytes{kBound});
    options.poller = poller;
    if (!poller) {
      options.clock = &clock_;
      options.waiting = &waiting_;
    }
    mover_.emplace(machine_, backends_, options);
  }
  Transfer copy(EngineId engine, std::uint64_t length) {
    const std::uint64_t at = std::exchange(next_, next_ + length);
    return mover_->copy({&to_, at, Bytes{length}}, {&from_, at, Bytes{length}},
                        {.route = test::by_engine(engine)});
  }
  // A move of two pieces: a move of one piece is copied by the thread that starts it.
  Transfer copy_inline_pieces(std::uint64_t pieces, std::uint64_t length) {
    const std::uint64_t at = std::exchange(next_, next_ + pieces * length);
    const RoutePolicy cut = [=](const Machine&, const RouteRequest&) -> Result<Route> {
      Route route;
      for (std::uint64_t i = 0; i < pieces; ++i) {
        route.parts.push_back({i * length, Bytes{length}, kCpuB});
      }
      return route;
    };
    return mover_->copy({&to_, at, Bytes{pieces * length}}, {&from_, at, Bytes{pieces * length}},
                        {.route = cut});
  }
  // Completes a piece as a thread of a backend does. Returns that thread.
  std::thread::id complete_one() {
    std::thread thread([this] { fake_->finish(1); });
    const auto id = thread.get_id();
    thread.join();
    return id;
  }

  const Machine machine_ = test::small_machine();
  ManualClock clock_;
  test::ManualWaiting waiting_{clock_};
  std::vector<std::byte> a_ = test::random_bytes(1 << 20, 1);
  std::vector<std::byte> b_ = std::vector<std::byte>(1 << 20);
  MemoryRange from_{a_, test::kDram};
  MemoryRange to_{b_, test::kHbm};
  std::uint64_t next_ = 0;
  FakeBackend* fake_ = nullptr;
  InlineBackend* inline_ = nullptr;
  Backends backends_;
  std::optional<Mover> mover_;
};

TEST_F(MoverVisits, Copy_CopiesInlinePiecesItself) {
  open(true);
  EXPECT_TRUE(copy(kCpuB, 100).done());
  EXPECT_TRUE(copy_inline_pieces(3, 100).done());
  EXPECT_EQ(inline_->threads(), std::vector(4, std::this_thread::get_id()));
}

// The copy uses nothing of the link's bound.
TEST_F(MoverVisits, OneInlinePiece_IsDoneWhenCopyReturnsEvenOnAFullLink) {
  open(false);
  const Transfer full = copy(kCpuA, kBound);
  const Transfer waiting = copy(kCpuA, 10);
  for (int i = 0; i < 3; ++i) {
    const Transfer transfer = copy(kCpuB, 100);
    ASSERT_TRUE(transfer.done());
    EXPECT_EQ(transfer.wait()->bytes, 100_B);
    EXPECT_EQ(transfer.wait()->pieces, 1u);
    EXPECT_EQ(transfer.poll()->value().engines, std::vector{kCpuB});
    bool told = false;
    transfer.on_done([&](const Result<MoveStats>& outcome) { told = outcome->bytes == 100_B; });
    EXPECT_TRUE(told);
    EXPECT_TRUE(transfer.event_fd());
    transfer.cancel();
    transfer.promote(Priority::demand);
  }
  EXPECT_FALSE(waiting.done());
  EXPECT_EQ(mover_->stats().transfers, 5u);
  EXPECT_EQ(mover_->stats().pieces, 3u);
  EXPECT_EQ(mover_->stats().bytes, 300_B);
  fake_->hold(false);
  EXPECT_TRUE(full.wait() && waiting.wait());
}

// Remembered routes also fall back to the scheduler if their engine refuses or fails.
TEST(MoverInline, FailedOrRefusedInlinePiece_IsRetriedOnAnotherEngine) {
  const Machine machine = test::small_machine();
  std::vector<std::byte> a = test::random_bytes(4096, 1);
  std::vector<std::byte> b(4096);
  const MemoryRange from(a, test::kDram);
  const MemoryRange to(b, test::kHbm);
  Backends backends;
  FakeBackend* fakes[2] = {};
  for (const EngineId engine : {kCpuA, kCpuB}) {
    auto fake = std::make_unique<FakeBackend>(FakeOptions{.engines = {engine}, .inside_chance = 1});
    fakes[raw(engine)] = fake.get();
    backends.add(std::move(fake));
  }
  Mover mover(machine, backends, test::by_hand());
  const auto copy = [&] { return mover.copy(whole(to), whole(from)); };
  EXPECT_TRUE(copy().done());
  EXPECT_EQ(copy().wait()->engines, std::vector{kCpuA}) << "remembered";
  fakes[0]->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  EXPECT_EQ(copy().wait()->engines, std::vector{kCpuB});
  fakes[0]->break_engine(kCpuA, std::nullopt);
  fakes[0]->refuse(kCpuA, Error{ErrorCode::unsupported, "not today"});
  EXPECT_EQ(copy().wait()->engines, std::vector{kCpuB});
  fakes[0]->refuse(kCpuA, std::nullopt);
  fakes[0]->accept_at_most(0);
  const Transfer waiting = copy();
  EXPECT_FALSE(waiting.done());
  fakes[0]->accept_at_most(std::nullopt);
  EXPECT_EQ(waiting.wait()->engines, std::vector{kCpuA});
  EXPECT_EQ(a, b);
  fakes[0]->break_engine(kCpuA, Error{ErrorCode::invalid, "nonsense"});
  EXPECT_EQ(copy().wait().error().code, ErrorCode::invalid);
}

TEST_F(MoverVisits, CompletingThread_CopiesNothing) {
  open(false);
  const Transfer first = copy(kCpuA, kBound);
  const Transfer second = copy_inline_pieces(2, 100);
  EXPECT_FALSE(second.done()) << "the link is full";
  complete_one();
  EXPECT_TRUE(first.done());
  EXPECT_FALSE(second.done());
  EXPECT_TRUE(inline_->threads().empty());
  EXPECT_EQ(mover_->poll(), 0u);
  EXPECT_TRUE(second.done()) << "whoever polls does it";
  EXPECT_EQ(inline_->threads(), std::vector(2, std::this_thread::get_id()));
}

TEST_F(MoverVisits, PiecesLeftByACompletingThread_AreCopiedByThePoller) {
  open(true);
  const Transfer first = copy(kCpuA, kBound);
  const Transfer second = copy_inline_pieces(40, 10);
  const auto completing = complete_one();
  EXPECT_TRUE(second.wait());
  const auto threads = inline_->threads();
  EXPECT_EQ(threads.size(), 40u);
  for (const auto id : {completing, std::this_thread::get_id()}) {
    EXPECT_EQ(std::ranges::count(threads, id), 0);
  }
}

TEST_F(MoverVisits, CancelAndPromote_CopyNothing) {
  open(false);
  const Transfer large = copy(kCpuA, kBound - 10);
  const Transfer next = copy_inline_pieces(2, 50);  // does not fit, and holds up the last
  const Transfer last = copy_inline_pieces(2, 5);
  next.cancel();
  EXPECT_TRUE(inline_->threads().empty());
  EXPECT_TRUE(last.wait());
  fake_->hold(false);
  EXPECT_TRUE(large.wait());
}

// Otherwise the read of an SSD would wait for copies by cores.
TEST_F(MoverVisits, AsynchronousEngines_GetTheirPiecesFirst) {
  open(false);
  const Transfer full = copy(kCpuA, kBound);
  const Transfer inlined = copy_inline_pieces(15, 10);
  const Transfer other = copy(kCpuA, 100);
  complete_one();
  EXPECT_EQ(fake_->in_flight(), 0u) << "the link's next piece is not this thread's to copy";
  mover_->poll();
  EXPECT_TRUE(inlined.done());
  EXPECT_EQ(inline_->others(), std::vector<std::size_t>(15, 1)) << "it was there before them";
  fake_->hold(false);
  EXPECT_TRUE(other.wait());
}

TEST_F(MoverVisits, Visit_CopiesAtMostSixteenPieces) {
  open(false);
  const Transfer full = copy(kCpuA, kBound);
  const Transfer many = copy_inline_pieces(100, 10);
  complete_one();
  for (std::size_t polls = 1; polls <= 6; ++polls) {
    mover_->poll();
    EXPECT_EQ(inline_->threads().size(), 16 * polls);
  }
  EXPECT_EQ(mover_->stats().queued_pieces, 4u);
  mover_->poll();
  EXPECT_TRUE(many.done());
  EXPECT_TRUE(copy_inline_pieces(16, 10).done());
  EXPECT_FALSE(copy_inline_pieces(17, 10).done());
}

TEST_F(MoverVisits, WaitWithMoreWork_ChecksItsBoundAfterEachShare) {
  open(false);
  const Transfer full = copy(kCpuA, kBound);
  const Transfer many = copy_inline_pieces(100, 10);
  complete_one();
  EXPECT_EQ(many.wait(0ns).error().code, ErrorCode::timed_out);
  EXPECT_EQ(inline_->threads().size(), 16u);
  int sleeps = 0;
  waiting_.asleep = [&] { ++sleeps; };
  EXPECT_TRUE(many.wait());
  EXPECT_EQ(sleeps, 0);
}

TEST_F(MoverVisits, Visit_SubmitsAtMostSixtyFourPieces) {
  open(false);
  std::vector<Transfer> all{copy(kCpuA, kBound)};
  for (int i = 0; i < 100; ++i) all.push_back(copy(kCpuA, 10));
  complete_one();
  EXPECT_EQ(fake_->in_flight(), 64u);
  mover_->poll();
  EXPECT_EQ(fake_->in_flight(), 100u);
  fake_->hold(false);
  for (const Transfer& transfer : all) EXPECT_TRUE(transfer.wait());
}

TEST_F(MoverVisits, PiecesLeftByAVisit_AreSubmittedByThePoller) {
  open(true);
  std::vector<Transfer> all{copy(kCpuA, kBound)};
  for (int i = 0; i < 200; ++i) all.push_back(copy(kCpuA, 10));
  complete_one();
  fake_->hold(false);
  for (const Transfer& transfer : all) EXPECT_TRUE(transfer.wait());
}

// The thread may be needed to end the other move.
TEST_F(MoverVisits, WaitInACallbackOfAnotherMover_IsInvalid) {
  open(false);
  Mover other(machine_, backends_, test::by_hand());
  bool called = false;
  Transfer needed;
  copy(kCpuA, 10).on_done([&](const auto&) {
    called = true;
    EXPECT_TRUE(mover_->in_callback() && other.in_callback());
    EXPECT_EQ(needed.wait().error().code, ErrorCode::invalid);
  });
  needed = other.copy({&to_, 1 << 19, 10_B}, {&from_, 1 << 19, 10_B});
  fake_->finish(1);
  EXPECT_TRUE(called);
  fake_->hold(false);
  EXPECT_FALSE(other.in_callback());
  EXPECT_TRUE(needed.wait());
  needed.on_done([&](const auto&) {
    EXPECT_TRUE(needed.wait()) << "done is no wait";
    EXPECT_TRUE(mover_->in_callback());
  });
}

}  // namespace
}  // namespace headrace
