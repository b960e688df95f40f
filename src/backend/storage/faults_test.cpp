// SPDX-License-Identifier: Apache-2.0
// Tests the failures between a request and its answer, by script, with io_uring and with threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "backend/storage/storage_testing.h"

namespace headrace {
namespace {

using namespace test;
using storage::Request;

class Faults : public testing::TestWithParam<bool> {
 protected:
  // Reads all of `file` under `script`.
  Status read(FaultyQueue::Script script, std::size_t skew = 0) {
    const auto backend = open_or_die(with_faults(GetParam(), std::move(script)));
    back_.assign(data_.size() + skew, std::byte{0});
    const MemoryRange memory(std::span<std::byte>(back_).subspan(skew), kDram);
    return copy_now(*backend, whole(memory), whole(*file_));
  }
  bool right(std::size_t skew = 0) const { return same(std::span(back_).subspan(skew), data_); }
  // The message names the file, is one line, and contains `what`.
  void expect_error(const Status& status, ErrorCode code, const std::string& what) const {
    ASSERT_FALSE(status);
    const std::string& text = status.error().message;
    EXPECT_EQ(status.error().code, code) << text;
    EXPECT_NE(text.find(file_->quoted()), std::string::npos) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }

  // Cuts the beginning of the file into `count` pieces.
  static constexpr std::uint64_t kEach = 65536;
  std::vector<Piece> cut(const MemoryRange& memory, std::uint64_t count) const {
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < count; ++i) {
      pieces.push_back({.from = {file_.get(), i * kEach, Bytes{kEach}},
                        .to = {&memory, i * kEach, Bytes{kEach}},
                        .engine = kSsd,
                        .tag = i});
    }
    return pieces;
  }

  TempDir dir_;
  Data data_ = random_bytes((1 << 20) + 333, 1);
  std::filesystem::path path_ = dir_.file("line\nbreak", data_);
  std::unique_ptr<File> file_ = open_file(path_, {.writable = true});
  Data back_;
};

INSTANTIATE_TEST_SUITE_P(Paths, Faults, testing::Bool(),
                         [](const auto& way) { return way.param ? "threads" : "uring"; });

TEST_P(Faults, ShortReadsAreResumed) {
  for (const std::size_t skew : {0, 1}) {
    // 4608: whole blocks of the device, but no whole page.
    for (const std::size_t at_most : {4096, 4608, 5000, 200'000}) {
      EXPECT_TRUE(read([at_most](const Request&) { return Fault{.at_most = at_most}; }, skew));
      EXPECT_TRUE(right(skew)) << skew << " " << at_most;
    }
  }
}

TEST_P(Faults, AnAnswerOfNothingFromAFileThatIsLongEnoughIsTriedAgainAndThenAnError) {
  std::atomic<int> asked = 0;
  EXPECT_TRUE(read([&](const Request&) { return Fault{.at_most = asked++ < 3 ? 0 : ~0UL}; }));
  EXPECT_TRUE(right());
  expect_error(read([&](const Request&) { return Fault{.at_most = 0}; }), ErrorCode::io, "offset");
}

TEST_P(Faults, InterruptionsAreTriedAgainButNotForEver) {
  for (const int error : {EINTR, EAGAIN}) {
    std::atomic<int> asked = 0;
    EXPECT_TRUE(read([&](const Request&) { return Fault{.error = asked++ < 5 ? error : 0}; }));
    EXPECT_TRUE(right());
    asked = 0;
    EXPECT_FALSE(read([&](const Request&) {
      ++asked;
      return Fault{.error = error};
    }));
    EXPECT_LT(asked, 100);
  }
}

TEST_P(Faults, AnErrorOfTheDeviceNamesFileAndOffset) {
  constexpr std::uint64_t kBad = 600'000;
  std::atomic<std::uint64_t> offset{0};  // of the failing request
  const auto bad = [&](const Request& request) {
    const bool hit = request.offset <= kBad && kBad < request.offset + request.bytes;
    if (hit) offset = request.offset;
    return Fault{.error = hit ? EIO : 0};
  };
  const Status failed = read(bad);
  expect_error(failed, ErrorCode::io, "cannot read");
  expect_error(failed, ErrorCode::io, "at offset " + std::to_string(offset) + ":");
}

TEST_P(Faults, AClosedFileIsNamedAsTheReason) {
  const Status failed = read([](const Request&) { return Fault{.error = EBADF}; });
  expect_error(failed, ErrorCode::io, "its File was closed");
}

TEST_P(Faults, ARefusedDirectRequestGoesThroughThePageCache) {
  const auto refuse = [this](const Request& request) {
    return Fault{.error = request.fd == file_->direct_fd() ? EINVAL : 0};
  };
  EXPECT_TRUE(read(refuse));
  EXPECT_TRUE(right());
}

TEST_P(Faults, AFullDiskIsExhausted) {
  const auto backend = open_or_die(with_faults(
      GetParam(), [](const Request& r) { return Fault{.error = r.write ? ENOSPC : 0}; }));
  Data data = data_;
  const MemoryRange memory(data, kDram);
  expect_error(copy_now(*backend, whole(*file_), whole(memory)), ErrorCode::exhausted, "make room");
}

TEST_P(Faults, ShortWritesAreResumed) {
  const auto backend =
      open_or_die(with_faults(GetParam(), [](const Request&) { return Fault{.at_most = 7000}; }));
  Data data = random_bytes(data_.size(), 2);
  const MemoryRange memory(data, kDram);
  ASSERT_TRUE(copy_now(*backend, {file_.get(), 1, Bytes{data.size() - 1}},
                       {&memory, 1, Bytes{data.size() - 1}}));
  data[0] = data_[0];
  EXPECT_EQ(contents(path_), data);
}

TEST_P(Faults, ALostRequestIsCancelledAndItsPieceTimesOut) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  std::atomic<int> lost = 0;
  StorageOptions options = with_faults(
      GetParam(),
      [&](const Request& request) { return Fault{.lost = request.offset == 0 && ++lost == 1}; },
      &time);
  options.limit = std::chrono::seconds{30};
  const auto backend = open_or_die(options);
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  const Piece piece{.from = whole(*file_), .to = whole(memory), .engine = kSsd, .tag = 0};
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&piece, 1}, outcomes), 1U);
  // The clock stands still, so nothing is late, and everything except the lost request can end.
  ASSERT_TRUE(eventually([&] { return lost > 0; }));
  EXPECT_EQ(outcomes.count(), 0U);
  time.passing = true;
  ASSERT_TRUE(outcomes.wait(1));
  expect_error(outcomes.of(0), ErrorCode::timed_out, "no answer");
  expect_error(outcomes.of(0), ErrorCode::timed_out, "within 30 s;");
  time.passing = false;
  // The queue continues to work.
  EXPECT_TRUE(copy_now(*backend, whole(memory), whole(*file_)));
  EXPECT_TRUE(right());
}

TEST_P(Faults, CancelledPiecesOfASilentDevice_EndBeforeTheirTime) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  std::atomic<int> asked = 0;
  StorageOptions options = with_faults(
      GetParam(),
      [&](const Request&) {
        ++asked;
        return Fault{.lost = true, .deaf = 3};
      },
      &time);
  options.queue_depth = 2;
  const auto backend = open_or_die(options);
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  constexpr std::uint64_t kPieces = 6;
  std::vector<Piece> pieces = cut(memory, kPieces);
  std::array<std::atomic<bool>, kPieces> cancelled{};
  for (std::uint64_t i = 0; i < kPieces; ++i) pieces[i].cancelled = &cancelled[i];
  Outcomes outcomes(clock);
  ASSERT_EQ(backend->submit(pieces, outcomes), kPieces);
  ASSERT_TRUE(eventually([&] { return asked == 2; }));
  backend->cancel(kSsd);
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    EXPECT_LE(outcomes.count(), i);
    cancelled[i] = true;
    backend->cancel(kSsd);
  }
  ASSERT_TRUE(outcomes.wait(kPieces - 2)) << "those without a request need no answer";
  EXPECT_EQ(outcomes.count(), kPieces - 2);
  time.passing = true;
  ASSERT_TRUE(outcomes.wait(kPieces));
  EXPECT_LT(outcomes.last_end(), std::chrono::seconds{1});
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    ASSERT_FALSE(outcomes.of(i));
    EXPECT_EQ(outcomes.of(i).error().code, ErrorCode::cancelled);
  }
}

// Cancels a piece that has been reported, and reuses its tag.
class ReusesTags final : public Completion {
 public:
  ReusesTags(const Piece& next, int times) : next_(next), left_(times) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    EXPECT_EQ(tag, next_.tag);
    failed_ += !outcome;
    cancelled_.at(static_cast<std::size_t>(left_)) = true;
    backend->cancel(kSsd);
    if (left_-- > 0) {
      submit();
    } else {
      ended_ = true;
    }
  }
  void submit() {
    Piece piece = next_;
    piece.cancelled = &cancelled_.at(static_cast<std::size_t>(left_));
    EXPECT_EQ(backend->submit({&piece, 1}, *this), 1U);
  }
  bool ended() const { return ended_; }
  int failed() const { return failed_; }

  Backend* backend = nullptr;

 private:
  const Piece next_;
  int left_;
  std::array<std::atomic<bool>, 21> cancelled_{};
  std::atomic<int> failed_{0};
  std::atomic<bool> ended_{false};
};

TEST_P(Faults, ACancellationIsForNoLaterPieceOfTheSameTag) {
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  for (const std::uint64_t bytes : {4096, 65536}) {
    const Piece piece{.from = {file_.get(), 0, Bytes{bytes}},
                      .to = {&memory, 0, Bytes{bytes}},
                      .engine = kSsd,
                      .tag = 0};
    ReusesTags completion(piece, 20);
    const auto backend =
        open_or_die(with_faults(GetParam(), [](const Request&) { return Fault{}; }));
    completion.backend = backend.get();
    completion.submit();
    ASSERT_TRUE(eventually([&] { return completion.ended(); })) << bytes;
    EXPECT_EQ(completion.failed(), 0) << bytes;
  }
}

// The cancellation comes before the piece, as from a thread that overtakes the submitter.
TEST_P(Faults, APieceCancelledBeforeItsSubmission_AsksNoDevice) {
  std::atomic<int> asked = 0;
  const auto backend = open_or_die(with_faults(GetParam(), [&](const Request&) {
    ++asked;
    return Fault{};
  }));
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  const std::atomic<bool> cancelled = true;
  backend->cancel(kSsd);
  std::vector<Piece> pieces = cut(memory, 2);
  {
    // When this has ended, the lane has dealt with the cancellation.
    Outcomes before;
    ASSERT_EQ(backend->submit(std::span(pieces).first(1), before), 1U);
    ASSERT_TRUE(before.wait(1));
    asked = 0;
  }
  pieces[0].cancelled = &cancelled;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(pieces, outcomes), 2U);
  ASSERT_TRUE(outcomes.wait(2));
  ASSERT_FALSE(outcomes.of(0));
  EXPECT_EQ(outcomes.of(0).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(outcomes.of(1));
  EXPECT_EQ(asked, 1);
}

// A callback that holds up the lane's thread.
class HoldsTheLane final : public Completion {
 public:
  void complete(std::uint64_t, Status) noexcept override {
    static_cast<void>(eventually([this] { return go_on.load(); }));
    ended = true;
  }
  std::atomic<bool> go_on = false;
  std::atomic<bool> ended = false;
};

TEST_P(Faults, ThousandsOfCancellationsDisplaceNone) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  std::atomic<int> lost = 0;
  const auto backend = open_or_die(with_faults(
      GetParam(),
      [&](const Request& request) {
        if (request.offset != 0) return Fault{};
        ++lost;
        return Fault{.lost = true};
      },
      &time));
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  std::vector<Piece> pieces = cut(memory, 2);
  std::atomic<bool> cancelled = false;
  pieces[0].cancelled = &cancelled;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(std::span(pieces).first(1), outcomes), 1U);
  ASSERT_TRUE(eventually([&] { return lost == 1; }));
  HoldsTheLane holds;
  ASSERT_EQ(backend->submit(std::span(pieces).last(1), holds), 1U);
  for (int i = 0; i < 5000; ++i) backend->cancel(kSsd);
  cancelled = true;
  backend->cancel(kSsd);
  holds.go_on = true;
  ASSERT_TRUE(outcomes.wait(1));
  ASSERT_FALSE(outcomes.of(0));
  EXPECT_EQ(outcomes.of(0).error().code, ErrorCode::cancelled);
  ASSERT_TRUE(eventually([&] { return holds.ended.load(); }));
}

TEST_P(Faults, ACancelledPieceIsNotTriedAgain) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  std::atomic<int> asked = 0;
  const auto backend = open_or_die(with_faults(
      GetParam(),
      [&](const Request&) {
        ++asked;
        return Fault{.error = EAGAIN};
      },
      &time));
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  std::atomic<bool> cancelled = false;
  const Piece piece{.from = {file_.get(), 0, 64_KiB},
                    .to = {&memory, 0, 64_KiB},
                    .engine = kSsd,
                    .tag = 0,
                    .cancelled = &cancelled};
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&piece, 1}, outcomes), 1U);
  ASSERT_TRUE(eventually([&] { return asked == 1; }));
  cancelled = true;
  backend->cancel(kSsd);
  ASSERT_TRUE(outcomes.wait(1));
  ASSERT_FALSE(outcomes.of(0));
  EXPECT_EQ(outcomes.of(0).error().code, ErrorCode::cancelled);
  EXPECT_EQ(asked, 1);
}

// The device no longer answers: pieces that wait for a slot must not wait forever.
TEST_P(Faults, PiecesThatWaitForASilentDeviceTimeOutToo) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  std::atomic<int> asked = 0;
  StorageOptions options = with_faults(
      GetParam(),
      [&](const Request&) {
        ++asked;
        return Fault{.lost = true};
      },
      &time);
  options.queue_depth = 2;
  const auto backend = open_or_die(options);
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  constexpr std::uint64_t kPieces = 10;
  const std::vector<Piece> pieces = cut(memory, kPieces);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(pieces, outcomes), kPieces);
  ASSERT_TRUE(eventually([&] { return asked >= 2; }));
  EXPECT_EQ(outcomes.count(), 0U);
  time.passing = true;
  ASSERT_TRUE(outcomes.wait(kPieces));
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    expect_error(outcomes.of(i), ErrorCode::timed_out, "no answer");
  }
  // Two for each time that pieces were taken in: those behind a silent request are not sent.
  EXPECT_LE(asked, 6) << "a device that is silent was asked on";
}

// The first answers have come when the process is stopped; it sees them after it continues.
class QueueOfAStoppedProcess final : public storage::Queue {
 public:
  QueueOfAStoppedProcess(std::unique_ptr<storage::Queue> real, ManualClock& clock)
      : real_(std::move(real)), clock_(clock) {}
  void start(Request& request) override { real_->start(request); }
  void cancel(Request& request) override { real_->cancel(request); }
  void wait(Nanoseconds timeout, std::vector<storage::Finished>& out) override {
    real_->wait(answered_.empty() ? timeout : Nanoseconds{0}, answered_);
    if (!answered_.empty() && !std::exchange(stopped_, true)) {
      clock_.advance(std::chrono::hours{1});
      return;  // by the signal that continues it
    }
    out.insert(out.end(), answered_.begin(), answered_.end());
    answered_.clear();
  }
  void wake() override { real_->wake(); }
  std::optional<int> wake_descriptor() const override { return real_->wake_descriptor(); }
  std::string describe() const override { return real_->describe(); }

 private:
  std::unique_ptr<storage::Queue> real_;
  ManualClock& clock_;
  std::vector<storage::Finished> answered_;
  bool stopped_ = false;
};

TEST_P(Faults, APauseOfTheProcessIsNoTimeOut) {
  ManualClock clock;
  StorageOptions options;
  options.queue = queue_of(GetParam());
  options.clock = &clock;
  options.queue_depth = 1;  // the others wait for their turn and must not fail either
  options.wrap = [&clock](std::unique_ptr<storage::Queue> real) {
    return std::make_unique<QueueOfAStoppedProcess>(std::move(real), clock);
  };
  const auto backend = open_or_die(options);
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  constexpr std::uint64_t kPieces = 4;
  const std::vector<Piece> pieces = cut(memory, kPieces);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(pieces, outcomes), kPieces);
  ASSERT_TRUE(outcomes.wait(kPieces));
  EXPECT_GE(clock.now(), std::chrono::hours{1});
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    EXPECT_TRUE(outcomes.of(i)) << outcomes.of(i).error().message;
  }
  EXPECT_TRUE(
      same(std::span(back_).first(kPieces * kEach), std::span(data_).first(kPieces * kEach)));
}

TEST_P(Faults, OnePieceThatFailsLeavesTheOthersAlone) {
  constexpr std::uint64_t kPieces = 32;
  const std::uint64_t each = data_.size() / kPieces;
  const auto backend = open_or_die(with_faults(GetParam(), [&](const Request& request) {
    return Fault{.error = request.offset / each == 5 ? EIO : 0};
  }));
  back_.assign(data_.size(), std::byte{0});
  const MemoryRange memory(back_, kDram);
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    pieces.push_back({.from = {file_.get(), i * each, Bytes{each}},
                      .to = {&memory, i * each, Bytes{each}},
                      .engine = kSsd,
                      .tag = i});
  }
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(pieces, outcomes), kPieces);
  ASSERT_TRUE(outcomes.wait(kPieces));
  std::size_t failed = 0;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    if (!outcomes.of(i)) {
      ++failed;
      continue;
    }
    EXPECT_TRUE(
        same(std::span(back_).subspan(i * each, each), std::span(data_).subspan(i * each, each)));
  }
  EXPECT_GE(failed, 1U);
  EXPECT_LE(failed, 2U);  // a bounced block may begin in the piece before
}

}  // namespace
}  // namespace headrace
