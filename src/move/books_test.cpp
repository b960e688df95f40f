#include "move/books.h"

#include <gtest/gtest.h>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;

// Bytes that no CPU can address, as a file's.
class Unaddressable final : public Object {
 public:
  Unaddressable(Bytes size, NodeId node) : Object(size, node, nullptr) {}
};

Route by(EngineId engine, std::uint64_t length) {
  return {.parts = {{0, Bytes{length}, engine}}, .reason = "test"};
}

// Books over two fakes, which they only ask for their capabilities.
class BooksTest : public testing::Test {
 protected:
  BooksTest() {
    backends_.add(
        std::make_unique<FakeBackend>(FakeOptions{.engines = {kCpuA, kCpuB}, .max_in_flight = 4}));
    books_.emplace(machine_, backends_, 16_KiB, 64_KiB);
  }

  // Pieces left in flight end with the test.
  ~BooksTest() override {
    for (const auto& move : moves_) move->books.self = nullptr;
  }

  std::shared_ptr<Move> open(const Object& from, std::uint64_t offset, std::uint64_t length,
                             const Route& route, Priority priority = Priority::demand) {
    auto move = std::make_shared<Move>(nullptr, Extent{&to_, 0, Bytes{length}},
                                       Extent{&from, offset, Bytes{length}},
                                       MoveOptions{.priority = priority}, Nanoseconds{0});
    EXPECT_TRUE(books_->open(move, books_->link(from.node(), to_.node()), route));
    moves_.push_back(move);
    return move;
  }
  std::vector<Work*> take(std::size_t most = 100) {
    std::vector<Work*> works(most);
    works.resize(books_->take(works, clock_));
    return works;
  }
  static std::vector<std::uint64_t> lengths(const std::vector<Work*>& works) {
    std::vector<std::uint64_t> all;
    for (const Work* work : works) all.push_back(work->length);
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
  std::optional<Books> books_;
};

TEST_F(BooksTest, CutsMemoryFromItsStart) {
  const auto move = open(from_, 100, 40'000, by(kCpuA, 40'000));
  EXPECT_EQ(books_->stats().queued_pieces, 3u);
  EXPECT_EQ(lengths(take()), (std::vector<std::uint64_t>{16384, 16384, 7232}));
  EXPECT_EQ(books_->stats().queued_pieces, 0u);
  EXPECT_EQ(books_->stats().in_flight_pieces, 3u);
  books_->cancel(*move);
}

// Only the first piece of a file's extent begins off its blocks.
TEST_F(BooksTest, CutsFilesAtTheirBlocks) {
  const Unaddressable file(1_MiB, test::kDram);
  const auto move = open(file, 100, 40'000, by(kCpuA, 40'000));
  EXPECT_EQ(books_->stats().queued_pieces, 3u);
  const auto works = take();
  EXPECT_EQ(lengths(works), (std::vector<std::uint64_t>{16284, 16384, 7332}));
  for (const Work* work : works) {
    EXPECT_TRUE(work->offset == 0 || (100 + work->offset) % 4096 == 0);
  }
  books_->cancel(*move);
}

TEST_F(BooksTest, DoesNotCutWhatFitsInOnePiece) {
  const Unaddressable file(1_MiB, test::kDram);
  const auto move = open(file, 100, 16384, by(kCpuA, 16384));
  EXPECT_EQ(lengths(take()), (std::vector<std::uint64_t>{16384}));
  books_->cancel(*move);
}

TEST_F(BooksTest, TheEnginesOfARouteAdvanceTogether) {
  const std::uint64_t half = 64 << 10;
  Route route = by(kCpuA, half);
  route.parts.push_back({half, Bytes{half}, kCpuB});
  const auto move = open(from_, 0, 2 * half, route);
  std::size_t a = 0;
  for (const Work* work : take()) a += work->lane->engine->id == kCpuA;
  EXPECT_EQ(a, 2u) << "half of what fits into 64 KiB";
  books_->cancel(*move);
}

TEST_F(BooksTest, PiecesPutBackComeAgainInOrder) {
  const auto move = open(from_, 0, 64 << 10, by(kCpuA, 64 << 10));
  const auto works = take();
  ASSERT_EQ(works.size(), 4u);
  for (std::size_t i = 4; i-- > 1;) EXPECT_EQ(books_->put_back(*works[i]), nullptr);
  EXPECT_TRUE(move->books.first_taken);
  EXPECT_EQ(books_->put_back(*works[0]), nullptr);
  EXPECT_FALSE(move->books.first_taken) << "none was accepted";
  std::uint64_t at = 0;
  for (const Work* work : take()) {
    EXPECT_EQ(work->offset, at);
    at += work->length;
  }
  EXPECT_EQ(at, 64u << 10);
  books_->cancel(*move);
}

TEST_F(BooksTest, AStalledEngineIsTakenFromAgainAfterACompletion) {
  const auto move = open(from_, 0, 64 << 10, by(kCpuA, 64 << 10));
  const auto works = take(2);
  EngineBook& engine = *works[0]->lane->engine;
  books_->put_back(*works[1]);
  books_->stall(engine, works[1]->seen);
  EXPECT_TRUE(take().empty());
  books_->settle(*works[0], {});
  EXPECT_EQ(take().size(), 3u);
  books_->cancel(*move);
}

// The completion came between the refusal and the note of it: nobody else would come to wake it.
TEST_F(BooksTest, AStallOvertakenByACompletionDoesNotCount) {
  const auto move = open(from_, 0, 64 << 10, by(kCpuA, 64 << 10));
  const auto works = take(2);
  EngineBook& engine = *works[0]->lane->engine;
  const std::uint64_t seen = works[1]->seen;
  books_->settle(*works[0], {});
  books_->put_back(*works[1]);
  books_->stall(engine, seen);
  EXPECT_EQ(take().size(), 3u);
  books_->cancel(*move);
}

TEST_F(BooksTest, AStallWithNothingInFlightNeedsSomebodyToAskAgain) {
  const auto move = open(from_, 0, 4096, by(kCpuA, 4096));
  const auto works = take();
  EngineBook& engine = *works[0]->lane->engine;
  const std::uint64_t seen = works[0]->seen;
  books_->put_back(*works[0]);
  books_->stall(engine, seen);
  EXPECT_TRUE(take().empty());
  EXPECT_TRUE(books_->needs_poll());
  books_->retry_stalled();
  EXPECT_FALSE(books_->needs_poll());
  EXPECT_EQ(take().size(), 1u);
  EXPECT_TRUE(books_->needs_poll()) << "the fake does not complete by itself";
}

TEST_F(BooksTest, AMoveEndsWithItsLastPiece) {
  const auto move = open(from_, 0, 20'000, by(kCpuA, 20'000));
  const auto works = take();
  ASSERT_EQ(works.size(), 2u);
  EXPECT_EQ(books_->settle(*works[1], {}), nullptr);
  EXPECT_FALSE(books_->quiet());
  EXPECT_EQ(books_->settle(*works[0], {}), move);
  EXPECT_TRUE(books_->quiet());
  EXPECT_EQ(move->books.stats.bytes, 20'000_B);
  EXPECT_EQ(books_->cancel(*move), nullptr) << "it is off the books";
}

TEST_F(BooksTest, CancellingAllEndsThoseWithNothingInFlight) {
  const auto flying = open(from_, 0, 4096, by(kCpuA, 4096));
  const auto works = take();
  const auto queued = open(from_, 0, 4096, by(kCpuA, 4096));
  EXPECT_EQ(books_->cancel_all(), std::vector{queued});
  EXPECT_EQ(books_->put_back(*works[0]), flying);
  EXPECT_EQ(books_->stats().cancelled, 2u);
}

}  // namespace
}  // namespace headrace
