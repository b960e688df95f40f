// SPDX-License-Identifier: Apache-2.0
#include "conformance/suite.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "core/check.h"
#include "headrace/clock.h"
#include "headrace/file.h"
#include "headrace/random.h"
#include "support/bytes.h"
#include "support/child.h"
#include "support/outcomes.h"

namespace headrace::conformance {
namespace {

using test::kBound;
using test::random_bytes;
using test::same;

// Pages that cost nothing until touched, so that a too large piece can be made.
class MemorySide final : public Side {
 public:
  MemorySide(NodeId node, Bytes bytes)
      : mapped_(std::max<std::size_t>(bytes.value, 1)),
        at_(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        range_({static_cast<std::byte*>(at_), bytes.value}, node) {
    CHECK(at_ != MAP_FAILED);
  }
  ~MemorySide() override { munmap(at_, mapped_); }
  const Object& object() const override { return range_; }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::copy(bytes.begin(), bytes.end(), range_.memory() + offset);
  }
  std::vector<std::byte> read(std::uint64_t offset, std::size_t length) const override {
    return {range_.memory() + offset, range_.memory() + offset + length};
  }

 private:
  const std::size_t mapped_;
  void* const at_;
  MemoryRange range_;
};

class FileSide final : public Side {
 public:
  FileSide(const Machine& machine, Bytes bytes) {
    std::string name = "conformance-XXXXXX";
    const int descriptor = mkstemp(name.data());
    CHECK(descriptor >= 0);
    CHECK(ftruncate(descriptor, static_cast<off_t>(bytes.value)) == 0);
    close(descriptor);
    path_ = std::filesystem::absolute(name);
    auto opened = File::open(machine, path_, {.writable = true});
    CHECK(opened.has_value());
    file_ = std::move(*opened);
  }
  ~FileSide() override { std::filesystem::remove(path_); }
  const Object& object() const override { return *file_; }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const auto done =
        pwrite(file_->buffered_fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    CHECK(done == static_cast<ssize_t>(bytes.size()));
    CHECK(fsync(file_->buffered_fd()) == 0);
  }
  std::vector<std::byte> read(std::uint64_t offset, std::size_t length) const override {
    std::vector<std::byte> bytes(length);
    const auto done = pread(file_->buffered_fd(), bytes.data(), length, static_cast<off_t>(offset));
    CHECK(done == static_cast<ssize_t>(length));
    return bytes;
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<File> file_;
};

// Outcomes of a backend that may need to be polled.
class Receipts : public test::Outcomes {
 public:
  void await(Backend& backend, std::size_t pieces) const {
    const Nanoseconds end = system_clock().now() + kBound;
    while (count() < pieces && system_clock().now() < end) {
      if (backend.poll() == 0) std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
    ASSERT_GE(count(), pieces) << "accepted pieces did not end";
  }
  // Each of the first `pieces` has ended once, well, and no other has.
  void expect_well(std::size_t pieces) const {
    EXPECT_EQ(count(), pieces);
    for (std::size_t i = 0; i < pieces; ++i) EXPECT_TRUE(of(i)) << i;
  }
};

// Submits all pieces, again and again where only some are accepted, and waits for all.
void carry_out(Backend& backend, std::span<const Piece> pieces, Receipts& receipts) {
  const Nanoseconds end = system_clock().now() + kBound;
  for (std::size_t at = 0; at < pieces.size() && system_clock().now() < end;) {
    const auto accepted = backend.submit(pieces.subspan(at), receipts);
    ASSERT_TRUE(accepted) << accepted.error().message;
    ASSERT_LE(*accepted, pieces.size() - at);
    at += *accepted;
    if (*accepted == 0 && backend.poll() == 0) std::this_thread::yield();
  }
  receipts.await(backend, pieces.size());
}

}  // namespace

MakeSide memory_on(NodeId node) {
  return [node](Bytes bytes) { return std::make_unique<MemorySide>(node, bytes); };
}

MakeSide file_of(const Machine& machine) {
  return [machine](Bytes bytes) { return std::make_unique<FileSide>(machine, bytes); };
}

void BackendConformance::SetUp() {
  backend_ = GetParam().open();
  if (backend_ == nullptr && !GetParam().skipped.empty()) GTEST_SKIP() << GetParam().skipped;
  ASSERT_NE(backend_, nullptr);
}

void BackendConformance::make_sides(Bytes length) {
  source_ = GetParam().source(length);
  destination_ = GetParam().destination(length);
  source_bytes_ = random_bytes(length.value, 1);
  destination_bytes_ = random_bytes(length.value, 2);
  source_->write(0, source_bytes_);
  destination_->write(0, destination_bytes_);
}

Piece BackendConformance::piece(std::uint64_t from, std::uint64_t to, std::uint64_t length,
                                std::uint64_t tag) const {
  return {.from = {&source_->object(), from, Bytes{length}},
          .to = {&destination_->object(), to, Bytes{length}},
          .engine = GetParam().engine,
          .tag = tag};
}

void BackendConformance::expect_copied(std::span<const Piece> pieces) const {
  std::vector<std::byte> expected = destination_bytes_;
  for (const Piece& done : pieces) {
    std::copy_n(source_bytes_.begin() + static_cast<std::ptrdiff_t>(done.from.offset),
                done.from.length.value,
                expected.begin() + static_cast<std::ptrdiff_t>(done.to.offset));
  }
  const auto found = destination_->read(0, expected.size());
  if (!same(expected, found)) {
    const auto at = std::ranges::mismatch(expected, found).in1 - expected.begin();
    ADD_FAILURE() << "first wrong byte of the destination: " << at;
  }
  EXPECT_TRUE(same(source_->read(0, source_bytes_.size()), source_bytes_)) << "the source changed";
}

TEST_P(FailingBackendConformance, EveryPieceEndsOnceAndTouchesNothingButItsOwnBytes) {
  constexpr std::size_t kPieces = 300;
  constexpr std::uint64_t kEach = 8192;
  make_sides(Bytes{kPieces * kEach});
  Random random(4);
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    const std::uint64_t length = 1 + random.below(kEach - 8);
    pieces.push_back(piece(i * kEach + random.below(8), i * kEach + random.below(8), length, i));
  }
  Receipts receipts;
  ASSERT_NO_FATAL_FAILURE(carry_out(*backend_, pieces, receipts));
  EXPECT_EQ(receipts.count(), kPieces);
  std::vector<Piece> done;
  for (const Piece& each : pieces) {
    const Status outcome = receipts.of(each.tag);
    if (outcome) {
      done.push_back(each);
      continue;
    }
    EXPECT_NE(outcome.error().code, ErrorCode::absent) << outcome.error().message;
    EXPECT_EQ(outcome.error().message.find('\n'), std::string::npos) << outcome.error().message;
    // The destination of a failed piece is unspecified.
    const auto left = destination_->read(each.to.offset, each.to.length.value);
    std::copy(left.begin(), left.end(),
              destination_bytes_.begin() + static_cast<std::ptrdiff_t>(each.to.offset));
  }
  EXPECT_GT(done.size(), 0u);
  EXPECT_LT(done.size(), kPieces) << "this case is made to fail some";
  expect_copied(done);
}

TEST_P(BackendConformance, CapabilitiesAreSane) {
  const Capabilities& facts = backend_->capabilities();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_FALSE(facts.note.empty());
  EXPECT_EQ(std::ranges::count(facts.engines, GetParam().engine), 1);
  EXPECT_EQ(std::set(facts.engines.begin(), facts.engines.end()).size(), facts.engines.size());
  EXPECT_GE(facts.max_in_flight, 1u);
  EXPECT_GE(facts.max_piece, 64_KiB) << "smaller pieces are not worth their bookkeeping";
  EXPECT_LE(facts.min_efficient, facts.max_piece);
}

// Odd starts and lengths, up to the last byte of both sides: neither a byte too few nor one too
// many.
TEST_P(BackendConformance, CopiesExactlyTheBytesOfThePieces) {
  constexpr std::array<std::uint64_t, 16> kLengths = {
      1, 2, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 16385, 65535, 65536, 262147, 1048579};
  constexpr std::array<std::uint64_t, 7> kOdd = {0, 1, 64, 511, 512, 4095, 4097};
  constexpr std::uint64_t kApart = 8192;  // each piece has whole pages of its own
  constexpr std::uint64_t kSize = (6 << 20) + 1;
  make_sides(Bytes{kSize});
  Random random(3);
  std::vector<Piece> pieces;
  std::uint64_t base = 0;
  for (const std::uint64_t length : kLengths) {
    if (length > backend_->capabilities().max_piece.value) continue;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::uint64_t from = kOdd[(length + i) % kOdd.size()];
      const std::uint64_t to = kOdd[(length / 3 + 4 * i) % kOdd.size()];
      pieces.push_back(piece(base + from, base + to, length, pieces.size()));
      base += (length + kOdd.back() + kApart - 1) / kApart * kApart;
    }
  }
  for (std::uint64_t i = 0; i < 64; ++i, base += 2 * kApart) {
    const std::uint64_t length = 1 + random.below(4097);
    pieces.push_back(
        piece(random.below(1 << 20), base + random.below(4097), length, pieces.size()));
  }
  const auto last = std::min<std::uint64_t>(65'537, backend_->capabilities().max_piece.value);
  ASSERT_LE(base, kSize - last);
  pieces.push_back(piece(kSize - last, kSize - last, last, pieces.size()));
  Receipts receipts;
  ASSERT_NO_FATAL_FAILURE(carry_out(*backend_, pieces, receipts));
  receipts.expect_well(pieces.size());
  expect_copied(pieces);
}

TEST_P(BackendConformance, NothingAndPiecesOfLengthZeroCompleteWell) {
  make_sides(64_KiB);
  Receipts receipts;
  EXPECT_EQ(backend_->submit({}, receipts), 0u);
  const Piece pieces[] = {piece(0, 0, 0, 0), piece(65536, 65536, 0, 1), piece(17, 4097, 0, 2)};
  ASSERT_NO_FATAL_FAILURE(carry_out(*backend_, pieces, receipts));
  receipts.expect_well(3);
  expect_copied({});
}

TEST_P(BackendConformance, RefusesInvalidPiecesAndForeignEngines) {
  make_sides(64_KiB);
  const std::uint64_t size = 65536;
  const auto changed = [&](auto change) {
    Piece bad = piece(0, 0, 64, 1);
    change(bad);
    return bad;
  };
  using enum ErrorCode;
  const std::pair<Piece, ErrorCode> bad[] = {
      {changed([](Piece& p) { p.from.object = nullptr; }), invalid},
      {changed([](Piece& p) { p.to.object = nullptr; }), invalid},
      {changed([](Piece& p) { p.to.length = 65_B; }), invalid},
      {changed([](Piece& p) { p.to = {p.from.object, 10, 64_B}; }), invalid},
      {changed([](Piece& p) { p.engine = EngineId{4711}; }), unsupported},
      {piece(size - 63, 0, 64, 1), invalid},
      {piece(0, size - 63, 64, 1), invalid},
      {piece(size + 1, 0, 0, 1), invalid},
      {piece(~std::uint64_t{0} - 8, 0, 64, 1), invalid},
      {piece(0, ~std::uint64_t{0} - 8, 64, 1), invalid}};
  Receipts receipts;
  for (std::size_t i = 0; i < std::size(bad); ++i) {
    SCOPED_TRACE(i);
    // A good one before it is not accepted either.
    const Piece pieces[] = {piece(0, 0, 64, 0), bad[i].first};
    const auto accepted = backend_->submit(pieces, receipts);
    ASSERT_FALSE(accepted);
    EXPECT_EQ(accepted.error().code, bad[i].second) << accepted.error().message;
    EXPECT_FALSE(accepted.error().message.empty());
  }
  backend_.reset();
  EXPECT_EQ(receipts.count(), 0u);
  expect_copied({});
}

TEST_P(BackendConformance, RefusesPiecesAboveItsLargest) {
  const Bytes most = backend_->capabilities().max_piece;
  if (most > 64_GiB) GTEST_SKIP() << "this backend has no largest piece to speak of";
  source_ = GetParam().source(most + 1_B);
  destination_ = GetParam().destination(most + 1_B);
  const Piece large = piece(0, 0, most.value + 1, 0);
  Receipts receipts;
  const auto accepted = backend_->submit({&large, 1}, receipts);
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, ErrorCode::invalid);
  EXPECT_EQ(receipts.count(), 0u);
}

// Many more than fit: those accepted are a prefix, each ends once, and what is in flight keeps near
// the bound (a piece whose slot is free again may still be about to be reported).
TEST_P(BackendConformance, EachAcceptedPieceEndsOnce) {
  const std::size_t most = backend_->capabilities().max_in_flight;
  const std::size_t count = std::min<std::size_t>(4 * most + 3, 600);
  make_sides(Bytes{count * 512});
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    pieces.push_back(piece((count - 1 - i) * 512, i * 512, 512, i));
  }
  Receipts receipts;
  std::size_t accepted = 0;
  const Nanoseconds end = system_clock().now() + kBound;
  while (accepted < count && system_clock().now() < end) {
    const auto taken = backend_->submit(std::span(pieces).subspan(accepted), receipts);
    ASSERT_TRUE(taken) << taken.error().message;
    accepted += *taken;
    const std::size_t ended = receipts.count();
    EXPECT_LE(accepted - ended, backend_->capabilities().completes_itself ? 2 * most : most);
    EXPECT_LE(ended, accepted);
    backend_->poll();
  }
  ASSERT_NO_FATAL_FAILURE(receipts.await(*backend_, count));
  backend_.reset();
  receipts.expect_well(count);
  expect_copied(pieces);
}

// complete() submits the next piece. What it is not relieved of (a submit() may take nothing) the
// test submits again.
class Chain final : public Receipts {
 public:
  Chain(Backend& backend, std::span<const Piece> pieces) : backend_(backend), pieces_(pieces) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    Receipts::complete(tag, std::move(outcome));
    if (tag + 1 < pieces_.size()) go_on(tag + 1);
  }
  void go_on(std::uint64_t tag) {
    const auto accepted = backend_.submit(pieces_.subspan(tag, 1), *this);
    CHECK(accepted.has_value());
    if (*accepted == 0) owed_.store(tag);
  }
  // The piece that was not accepted, or 0.
  std::uint64_t take_owed() { return owed_.exchange(0); }

 private:
  Backend& backend_;
  const std::span<const Piece> pieces_;
  std::atomic<std::uint64_t> owed_{0};
};

TEST_P(BackendConformance, ACompletionMaySubmitAgain) {
  constexpr std::size_t kChain = 300;
  make_sides(Bytes{kChain * 512});
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kChain; ++i) pieces.push_back(piece(i * 512, i * 512, 512, i));
  Chain chain(*backend_, pieces);
  bool started = false;
  const Nanoseconds end = system_clock().now() + kBound;
  while (chain.count() < kChain && system_clock().now() < end) {
    if (!started) started = backend_->submit(std::span(pieces).first(1), chain).value_or(0) == 1;
    if (const std::uint64_t owed = chain.take_owed()) chain.go_on(owed);
    if (backend_->poll() == 0) std::this_thread::yield();
  }
  chain.expect_well(kChain);
  backend_.reset();
  expect_copied(pieces);
}

TEST_P(BackendConformance, ManyThreadsMaySubmit) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 40;
  constexpr std::size_t kLength = 3000;
  make_sides(Bytes{kThreads * kEach * 4096});
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kThreads * kEach; ++i) {
    pieces.push_back(piece(i * 4096 + i % 7, i * 4096 + i % 11, kLength, i));
  }
  Receipts receipts;
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < kEach;) {
          const auto taken = backend_->submit(
              std::span(pieces).subspan(t * kEach + i, std::min<std::size_t>(5, kEach - i)),
              receipts);
          CHECK(taken.has_value());
          i += *taken;
          if (*taken == 0 && backend_->poll() == 0) std::this_thread::yield();
        }
      });
    }
  }
  ASSERT_NO_FATAL_FAILURE(receipts.await(*backend_, pieces.size()));
  receipts.expect_well(pieces.size());
  expect_copied(pieces);
}

TEST_P(BackendConformance, TheDestructorEndsWhatIsInFlight) {
  make_sides(4_MiB);
  std::vector<Piece> pieces;
  const std::uint64_t length =
      std::min<std::uint64_t>(1 << 18, backend_->capabilities().max_piece.value);
  for (std::size_t i = 0; i < 8; ++i) pieces.push_back(piece(i << 18, i << 18, length, i));
  Receipts receipts;
  const auto accepted = backend_->submit(pieces, receipts);
  ASSERT_TRUE(accepted);
  backend_.reset();
  receipts.expect_well(*accepted);
  expect_copied(std::span(pieces).first(*accepted));
}

TEST_P(BackendConformance, InAChildItRefusesAndGoesQuietly) {
  make_sides(256_KiB);
  Receipts receipts;
  std::vector<Piece> pieces;
  for (std::uint64_t tag = 0; tag < 64; ++tag) {
    pieces.push_back(piece(tag * 4096, tag * 4096, 4096, tag));
  }
  const auto accepted = backend_->submit(pieces, receipts);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(test::status_of_child([&] {
              Receipts own;
              const auto refused = backend_->submit({pieces.data(), 1}, own);
              backend_->poll();
              backend_.reset();
              return !refused && refused.error().code == ErrorCode::unsupported && own.count() == 0;
            }),
            0);
  receipts.await(*backend_, *accepted);
  expect_copied(std::span(pieces).first(*accepted));
}

// The moment a piece is done both sides are the user's: changing the source does not reach the
// destination, and what is written to the destination stays.
TEST_P(BackendConformance, AfterItsCompletionAPieceTouchesNothing) {
  make_sides(512_KiB);
  const Piece pieces[] = {piece(0, 0, 65536, 0), piece(65536, 65536, 65536, 1)};
  Receipts receipts;
  ASSERT_NO_FATAL_FAILURE(carry_out(*backend_, pieces, receipts));
  const std::vector<std::byte> other(65536, std::byte{0x11});
  destination_->write(0, other);
  source_->write(65536, other);
  backend_.reset();
  EXPECT_TRUE(destination_->read(0, 65536) == other);
  EXPECT_TRUE(
      same(destination_->read(65536, 65536), std::span(source_bytes_).subspan(65536, 65536)));
}

TEST_P(BackendConformance, PollTellsHowManyItFound) {
  make_sides(64_KiB);
  const std::size_t count = std::min<std::size_t>(8, backend_->capabilities().max_in_flight);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < count; ++i) pieces.push_back(piece(i * 4096, i * 4096, 4096, i));
  Receipts receipts;
  EXPECT_EQ(backend_->poll(), 0u) << "nothing is in flight";
  const auto accepted = backend_->submit(pieces, receipts);
  ASSERT_TRUE(accepted);
  const std::size_t inside = backend_->capabilities().completes_itself ? 0 : receipts.count();
  std::size_t found = 0;
  const Nanoseconds end = system_clock().now() + kBound;
  while (receipts.count() < *accepted && system_clock().now() < end) found += backend_->poll();
  EXPECT_EQ(receipts.count(), *accepted);
  EXPECT_EQ(found, backend_->capabilities().completes_itself ? 0 : *accepted - inside);
}

}  // namespace headrace::conformance
