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
  static constexpr std::uint64_t kEach = 65536;

  // A backend under `script`. While time_.passing, its waits take no real time.
  std::unique_ptr<Backend> open(FaultScript script, std::size_t depth = 64) {
    StorageOptions options = with_faults(GetParam(), std::move(script), &time_);
    options.queue_depth = depth;
    return open_or_die(options);
  }
  // Copies the file and memory of the same size.
  Status copy(FaultScript script, std::size_t skew = 0, bool write = false) {
    const auto backend = open_or_die(with_faults(GetParam(), std::move(script)));
    const MemoryRange memory(std::span<std::byte>(back_).subspan(skew, data_.size()), kDram);
    return write ? copy_now(*backend, whole(*file_), whole(memory))
                 : copy_now(*backend, whole(memory), whole(*file_));
  }
  bool right(std::size_t skew = 0) const {
    return same(std::span(back_).subspan(skew, data_.size()), data_);
  }
  std::vector<Piece> pieces(std::uint64_t count) const {
    return reads(*file_, memory_, count, kEach);
  }
  // The message names the file, is one line, and contains `what`.
  void expect_error(const Status& status, ErrorCode code, const std::string& what) const {
    ASSERT_FALSE(status);
    const std::string& text = status.error().message;
    EXPECT_EQ(status.error().code, code) << text;
    EXPECT_NE(text.find(file_->quoted()), std::string::npos) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  static void expect_cancelled(const Status& status) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::cancelled) << status.error().message;
  }

  TempDir dir_;
  const Data data_ = random_bytes((1 << 20) + 333, 1);
  std::filesystem::path path_ = dir_.file("line\nbreak", data_);
  std::unique_ptr<File> file_ = open_file(path_, {.writable = true});
  Data back_ = Data(data_.size() + 1);
  const MemoryRange memory_{back_, kDram};
  ManualClock clock_;
  FaultyQueue::Time time_{.clock = clock_};
  std::atomic<int> asked_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Paths, Faults, testing::Bool(),
                         [](const auto& way) { return way.param ? "threads" : "uring"; });

TEST_P(Faults, ShortAnswersAreResumed) {
  for (const std::size_t skew : {0, 1}) {
    // 4608: whole blocks of the device, but no whole page.
    for (const std::size_t at_most : {4096, 4608, 5000, 200'000}) {
      EXPECT_TRUE(copy([at_most](const Request&) { return Fault{.at_most = at_most}; }, skew));
      EXPECT_TRUE(right(skew)) << skew << " " << at_most;
    }
  }
  back_ = random_bytes(back_.size(), 2);
  EXPECT_TRUE(copy([](const Request&) { return Fault{.at_most = 7000}; }, 1, true));
  EXPECT_TRUE(same(contents(path_), std::span(back_).subspan(1)));
}

TEST_P(Faults, InterruptionsAndEmptyAnswersAreTriedAgainButNotForEver) {
  for (const auto& [fault, code] : {std::pair{Fault{.error = EINTR}, ErrorCode::io},
                                    {Fault{.error = EAGAIN}, ErrorCode::exhausted},
                                    {Fault{.at_most = 0}, ErrorCode::io}}) {
    asked_ = 0;
    EXPECT_TRUE(copy([&](const Request&) { return asked_++ < 5 ? fault : Fault{}; }));
    EXPECT_TRUE(right());
    asked_ = 0;
    expect_error(copy([&](const Request&) {
                   ++asked_;
                   return fault;
                 }),
                 code, "at offset ");
    EXPECT_LT(asked_, 100);
  }
}

TEST_P(Faults, ErrorsNameTheFileTheOffsetAndTheRemedy) {
  constexpr std::uint64_t kBad = 600'000;
  std::atomic<std::uint64_t> offset{0};  // of the failing request
  const Status failed = copy([&](const Request& request) {
    const bool hit = request.offset <= kBad && kBad < request.offset + request.bytes;
    if (hit) offset = request.offset;
    return Fault{.error = hit ? EIO : 0};
  });
  expect_error(failed, ErrorCode::io, "cannot read");
  expect_error(failed, ErrorCode::io, "at offset " + std::to_string(offset) + ":");
  expect_error(copy([](const Request&) { return Fault{.error = EBADF}; }), ErrorCode::io,
               "its File was closed");
  expect_error(copy([](const Request&) { return Fault{.error = ENOSPC}; }, 0, true),
               ErrorCode::exhausted, "make room");
}

TEST_P(Faults, ARefusedDirectRequestGoesThroughThePageCache) {
  EXPECT_TRUE(copy([this](const Request& request) {
    return Fault{.error = request.fd == file_->direct_fd() ? EINVAL : 0};
  }));
  EXPECT_TRUE(right());
}

TEST_P(Faults, ALostRequestIsCancelledAndItsPieceTimesOut) {
  const auto backend = open(
      [&](const Request& request) { return Fault{.lost = request.offset == 0 && ++asked_ == 1}; });
  const MemoryRange memory(std::span<std::byte>(back_).first(data_.size()), kDram);
  const Piece piece{.from = whole(*file_), .to = whole(memory), .engine = kSsd, .tag = 0};
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&piece, 1}, outcomes), 1U);
  // The clock stands still, so nothing is late, and everything except the lost request can end.
  ASSERT_TRUE(eventually([&] { return asked_ > 0; }));
  EXPECT_EQ(outcomes.count(), 0U);
  time_.passing = true;
  ASSERT_TRUE(outcomes.wait(1));
  expect_error(outcomes.of(0), ErrorCode::timed_out, "no answer");
  expect_error(outcomes.of(0), ErrorCode::timed_out, "within 30 s;");
  time_.passing = false;
  // The queue continues to work.
  EXPECT_TRUE(copy_now(*backend, whole(memory), whole(*file_)));
  EXPECT_TRUE(right());
}

// The device no longer answers: pieces that wait for a slot must not wait forever.
TEST_P(Faults, PiecesThatWaitForASilentDeviceTimeOutToo) {
  constexpr std::uint64_t kPieces = 10;
  const auto backend = open(
      [&](const Request&) {
        ++asked_;
        return Fault{.lost = true};
      },
      2);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(pieces(kPieces), outcomes), kPieces);
  ASSERT_TRUE(eventually([&] { return asked_ >= 2; }));
  EXPECT_EQ(outcomes.count(), 0U);
  time_.passing = true;
  ASSERT_TRUE(outcomes.wait(kPieces));
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    expect_error(outcomes.of(i), ErrorCode::timed_out, "no answer");
  }
  // Two for each time that pieces were taken in: those behind a silent request are not sent.
  EXPECT_LE(asked_, 6) << "a device that is silent was asked on";
}

TEST_P(Faults, CancelledPiecesOfASilentDevice_EndBeforeTheirTime) {
  constexpr std::uint64_t kPieces = 6;
  const auto backend = open(
      [&](const Request&) {
        ++asked_;
        return Fault{.lost = true, .deaf = 3};
      },
      2);
  auto all = pieces(kPieces);
  std::array<std::atomic<bool>, kPieces> cancelled{};
  for (std::uint64_t i = 0; i < kPieces; ++i) all[i].cancelled = &cancelled[i];
  TimedOutcomes outcomes(clock_);
  ASSERT_EQ(backend->submit(all, outcomes), kPieces);
  ASSERT_TRUE(eventually([&] { return asked_ == 2; }));
  backend->cancel(kSsd);
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    EXPECT_LE(outcomes.count(), i);
    cancelled[i] = true;
    backend->cancel(kSsd);
  }
  ASSERT_TRUE(outcomes.wait(kPieces - 2)) << "those without a request need no answer";
  EXPECT_EQ(outcomes.count(), kPieces - 2);
  time_.passing = true;
  ASSERT_TRUE(outcomes.wait(kPieces));
  EXPECT_LT(outcomes.last_end(), std::chrono::seconds{1});
  for (std::uint64_t i = 0; i < kPieces; ++i) expect_cancelled(outcomes.of(i));
}

// The cancellation comes before the piece, as from a thread that overtakes the submitter.
TEST_P(Faults, APieceCancelledBeforeItsSubmission_AsksNoDevice) {
  const auto backend = open_or_die(with_faults(GetParam(), [&](const Request&) {
    ++asked_;
    return Fault{};
  }));
  const std::atomic<bool> cancelled = true;
  backend->cancel(kSsd);
  auto both = pieces(2);
  {
    // When this has ended, the lane has dealt with the cancellation.
    Outcomes before;
    ASSERT_EQ(backend->submit(std::span(both).first(1), before), 1U);
    ASSERT_TRUE(before.wait(1));
    asked_ = 0;
  }
  both[0].cancelled = &cancelled;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(both, outcomes), 2U);
  ASSERT_TRUE(outcomes.wait(2));
  expect_cancelled(outcomes.of(0));
  EXPECT_TRUE(outcomes.of(1));
  EXPECT_EQ(asked_, 1);
}

TEST_P(Faults, ACancelledPieceIsNotTriedAgain) {
  const auto backend = open([&](const Request&) {
    ++asked_;
    return Fault{.error = EAGAIN};
  });
  std::atomic<bool> cancelled = false;
  auto one = pieces(1);
  one[0].cancelled = &cancelled;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(one, outcomes), 1U);
  ASSERT_TRUE(eventually([&] { return asked_ == 1; }));
  cancelled = true;
  backend->cancel(kSsd);
  ASSERT_TRUE(outcomes.wait(1));
  expect_cancelled(outcomes.of(0));
  EXPECT_EQ(asked_, 1);
}

// Cancels a piece that has been reported, and reuses its tag.
class ReusesTags final : public Completion {
 public:
  ReusesTags(Backend& backend, Piece next) : backend_(backend), next_(next) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    EXPECT_EQ(tag, next_.tag);
    EXPECT_TRUE(outcome) << outcome.error().message;
    cancelled_[done_] = true;
    backend_.cancel(kSsd);
    if (++done_ < cancelled_.size()) submit();
  }
  void submit() {
    next_.cancelled = &cancelled_[done_];
    EXPECT_EQ(backend_.submit({&next_, 1}, *this), 1U);
  }
  bool ended() const { return done_ == cancelled_.size(); }

 private:
  Backend& backend_;
  Piece next_;
  std::array<std::atomic<bool>, 20> cancelled_{};
  std::atomic<std::size_t> done_{0};
};

TEST_P(Faults, ACancellationIsForNoLaterPieceOfTheSameTag) {
  for (const std::uint64_t bytes : {4096, 65536}) {
    const auto backend =
        open_or_die(with_faults(GetParam(), [](const Request&) { return Fault{}; }));
    ReusesTags completion(*backend, reads(*file_, memory_, 1, bytes)[0]);
    completion.submit();
    ASSERT_TRUE(eventually([&] { return completion.ended(); })) << bytes;
  }
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
  constexpr std::uint64_t kPieces = 4;
  StorageOptions options{.queue_depth = 1, .queue = queue_of(GetParam()), .clock = &clock_};
  // With a depth of 1 the others wait for their turn, and must not fail either.
  options.wrap = [this](std::unique_ptr<storage::Queue> real) {
    return std::make_unique<QueueOfAStoppedProcess>(std::move(real), clock_);
  };
  const auto backend = open_or_die(options);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(pieces(kPieces), outcomes), kPieces);
  ASSERT_TRUE(outcomes.wait(kPieces));
  EXPECT_GE(clock_.now(), std::chrono::hours{1});
  EXPECT_EQ(outcomes.failed().size(), 0U) << outcomes.last().message;
  EXPECT_TRUE(
      same(std::span(back_).first(kPieces * kEach), std::span(data_).first(kPieces * kEach)));
}

}  // namespace
}  // namespace headrace
