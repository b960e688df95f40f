// SPDX-License-Identifier: Apache-2.0
// Tests small reads from outside: which thread sends each, and which reports it.
#include "backend/storage/small_reads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "backend/storage/queue.h"
#include "backend/storage/storage_testing.h"

namespace headrace {
namespace {

using namespace test;
using storage::Request;

// Records the reporting thread of at most two pieces.
class Reporter final : public Outcomes {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    threads.at(tag) = std::this_thread::get_id();
    Outcomes::complete(tag, std::move(outcome));
  }
  std::array<std::thread::id, 2> threads;
};

class SmallReadsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto queue = storage::open_uring(1, {});
    if (!queue) GTEST_SKIP() << queue.error().message;
  }

  // `small` and `lane` get the requests of the rings and of the lanes.
  StorageOptions with(FaultScript small, FaultyQueue::Time* time = nullptr) {
    StorageOptions options =
        with_faults(false, [this](const Request&) { return ++by_lane_, Fault{}; }, time);
    options.wrap_shared = [this, small](std::unique_ptr<storage::SharedRing> real) {
      const auto count = [this, small](const Request& request) {
        ++by_threads_;
        return small(request);
      };
      return std::make_unique<FaultyRing>(std::move(real), count, &held_);
    };
    return options;
  }
  static Fault none(const Request&) { return {}; }

  Piece piece(const MemoryRange& memory, const File& file, std::uint64_t offset,
              std::uint64_t bytes, std::uint64_t tag = 0) const {
    return {.from = {&file, offset, Bytes{bytes}},
            .to = {&memory, 0, Bytes{bytes}},
            .engine = kSsd,
            .tag = tag};
  }
  bool right(std::uint64_t offset, std::uint64_t bytes) const {
    return same(std::span(back_).first(bytes), std::span(data_).subspan(offset, bytes));
  }
  void make_the_lane_look(Backend& backend) {
    ASSERT_TRUE(copy_now(backend, {&large_, 0, 64_KiB}, {file_.get(), 0, 64_KiB}));
  }
  // Waits for the read into `memory_` until all pieces have ended.
  void help_to_the_end(Backend& backend, const Outcomes& outcomes, std::size_t pieces = 1) const {
    while (outcomes.count() < pieces) help(backend, std::chrono::milliseconds{1});
  }
  // Waits for the read into `memory_`.
  std::size_t help(Backend& backend, Nanoseconds most) const { return backend.help(back_, most); }

  TempDir dir_;
  Data data_ = random_bytes(1 << 20, 1);
  std::filesystem::path path_ = dir_.file("a", data_);
  std::unique_ptr<File> file_ = open_file(path_, {});
  Data back_ = Data(1 << 20);
  MemoryRange memory_{back_, kDram};
  Data large_bytes_ = Data(1 << 16);
  MemoryRange large_{large_bytes_, kDram};
  std::atomic<int> by_lane_ = 0;
  std::atomic<int> by_threads_ = 0;
  FaultyRing::Held held_;
};

TEST_F(SmallReadsTest, AReadBelow64KiBIsOneRequestOfTheThreadThatAsks) {
  const auto backend = open_or_die(with(none));
  const auto buffered = open_file(path_, {.direct = false});
  for (const File* file : {file_.get(), buffered.get()}) {
    for (const auto& [offset, bytes] :
         {std::pair{4096, 4096}, {1, 1}, {4095, 65535}, {8192, 777}}) {
      by_threads_ = 0;
      const Piece small = piece(memory_, *file, offset, bytes);
      ASSERT_TRUE(copy_now(*backend, small.to, small.from));
      EXPECT_TRUE(right(offset, bytes));
      EXPECT_EQ(by_threads_, 1) << offset << " " << bytes;
    }
  }
  EXPECT_EQ(by_lane_, 0);
  ASSERT_TRUE(copy_now(*backend, {&memory_, 0, 64_KiB}, {file_.get(), 0, 64_KiB}));
  EXPECT_GT(by_lane_, 0);
}

TEST_F(SmallReadsTest, WhatEndsOtherwiseTheLaneReadsAgain) {
  const std::vector<Fault> faults = {{.error = EINTR},     {.error = EAGAIN}, {.error = EINVAL},
                                     {.error = ECANCELED}, {.error = EIO},    {.at_most = 0},
                                     {.at_most = 512},     {.at_most = 5000}};
  for (const Fault& fault : faults) {
    const auto backend = open_or_die(with([&](const Request&) { return fault; }));
    for (const std::uint64_t offset : {8192, 8193}) {
      by_threads_ = by_lane_ = 0;
      back_.assign(back_.size(), std::byte{0});
      const Piece small = piece(memory_, *file_, offset, 12288);
      ASSERT_TRUE(copy_now(*backend, small.to, small.from));
      EXPECT_TRUE(right(offset, 12288));
      EXPECT_EQ(by_threads_, 1);
      EXPECT_GE(by_lane_, 1);
    }
  }
}

TEST_F(SmallReadsTest, WhoWaitsTakesAndReports) {
  const auto backend = open_or_die(with(none));
  EXPECT_EQ(help(*backend, std::chrono::seconds{30}), 0U) << "there was nothing to wait for";
  held_.reads = true;  // from the lane
  // Buffered: the kernel itself writes the bytes to where right() reads them.
  const auto buffered = open_file(path_, {.direct = false});
  const Piece small = piece(memory_, *buffered, 4096, 4096);
  Reporter reporter;
  ASSERT_EQ(backend->submit({&small, 1}, reporter), 1U);
  EXPECT_EQ(reporter.count(), 0U);
  std::thread([&] { EXPECT_EQ(help(*backend, std::chrono::seconds{30}), 0U); }).join();
  // The read ends while this thread waits for it; before that the lane may report it. A slow disk
  // may take longer than this thread needs to go to sleep.
  std::jthread end([&] {
    static_cast<void>(eventually([&] { return held_.sleepers > 0 && right(4096, 4096); }));
    held_.reads = false;
  });
  while (reporter.count() == 0) help(*backend, std::chrono::seconds{30});
  EXPECT_EQ(reporter.threads[0], std::this_thread::get_id());
  EXPECT_TRUE(right(4096, 4096));
}

TEST_F(SmallReadsTest, AThreadWithAReadInFlight_WaitsForNoOther) {
  const auto backend = open_or_die(with(none));
  held_.reads = true;
  Data other(4096);
  const Piece small = piece(memory_, *file_, 4096, 4096);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
  EXPECT_EQ(backend->help(other, std::chrono::seconds{30}), 0U);
  EXPECT_EQ(held_.sleeps, 0);
  held_.reads = false;
  help_to_the_end(*backend, outcomes);
  EXPECT_TRUE(outcomes.of(0));
}

// A thread sends two reads at once, and waits for the first one.
class TwoReadsTest : public SmallReadsTest {
 protected:
  void SetUp() override {
    SmallReadsTest::SetUp();
    if (IsSkipped()) return;
    backend_ = open_or_die(with(none));
    held_.reads = true;
  }
  void send_and_wait() {
    const std::array both = {piece(memory_, *file_, 4096, 4096, 0),
                             piece(other_, *file_, 8192, 4096, 1)};
    EXPECT_EQ(backend_->submit(both, reporter_), 2U);
    help(*backend_, std::chrono::seconds{30});
  }
  bool sleeps() {
    return eventually([this] { return held_.sleepers == 1; });
  }

  Data other_bytes_ = Data(4096);
  MemoryRange other_{other_bytes_, kDram};
  Reporter reporter_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(TwoReadsTest, WhileTheThreadGetsNoCpu_TheOtherEnds) {
  held_.stopped = true;
  std::jthread thread([this] { send_and_wait(); });
  ASSERT_TRUE(sleeps());
  EXPECT_TRUE(held_.announced);
  held_.reads = false;
  make_the_lane_look(*backend_);
  EXPECT_TRUE(reporter_.wait(1));
  EXPECT_EQ(reporter_.count(), 1U) << "the first is left to its thread";
  held_.stopped = false;
  EXPECT_TRUE(reporter_.of(1));
  EXPECT_NE(reporter_.threads[1], thread.get_id());
  ASSERT_TRUE(reporter_.wait(2));
  EXPECT_EQ(reporter_.threads[0], thread.get_id());
  EXPECT_TRUE(right(4096, 4096));
  EXPECT_TRUE(same(other_bytes_, std::span(data_).subspan(8192, 4096)));
}

TEST_F(TwoReadsTest, TheThreadReportsNoneButItsOwn) {
  std::jthread thread([this] { send_and_wait(); });
  ASSERT_TRUE(sleeps());
  held_.reads = false;
  ASSERT_TRUE(reporter_.wait(1));
  make_the_lane_look(*backend_);
  ASSERT_TRUE(reporter_.wait(2));
  EXPECT_EQ(reporter_.threads[0], thread.get_id());
  EXPECT_NE(reporter_.threads[1], thread.get_id());
}

TEST_F(TwoReadsTest, OnlyOtherReadsThanTheAwaitedAreAnnounced) {
  std::jthread thread([this] {
    const Piece small = piece(memory_, *file_, 4096, 4096);
    EXPECT_EQ(backend_->submit({&small, 1}, reporter_), 1U);
    EXPECT_TRUE(held_.announced);
    help(*backend_, std::chrono::seconds{30});
  });
  ASSERT_TRUE(sleeps());
  EXPECT_FALSE(held_.announced);
  held_.reads = false;
  EXPECT_TRUE(reporter_.wait(1));
}

// The kernel first posts the end of a read, then checks whether ends are announced. A thread that
// finds the end in between must not have switched announcements off.
TEST_F(TwoReadsTest, AnEndThatTheThreadFinds_IsAnnounced) {
  backend_ = open_or_die(with([](const Request& request) {
    return request.offset == 4096 ? Fault{.lost = true} : Fault{.error = EIO};
  }));
  std::atomic<bool> cancelled = false;
  std::jthread thread([&] {
    std::array both = {piece(memory_, *file_, 4096, 4096, 0), piece(other_, *file_, 8192, 4096, 1)};
    both[0].cancelled = &cancelled;
    EXPECT_EQ(backend_->submit(both, reporter_), 2U);
    held_.reads = false;
    help(*backend_, std::chrono::milliseconds{300});
    help_to_the_end(*backend_, reporter_, 2);
  });
  ASSERT_TRUE(eventually([this] { return held_.sleeps > 0; }));
  EXPECT_TRUE(held_.announced);
  make_the_lane_look(*backend_);  // as the announcement does
  EXPECT_TRUE(reporter_.wait(1));
  EXPECT_TRUE(reporter_.of(1)) << "the lane has read it again";
  EXPECT_NE(reporter_.threads[1], thread.get_id());
  cancelled = true;
  backend_->cancel(kSsd);
  EXPECT_TRUE(reporter_.wait(2));
}

// The second thread shares the ring of the first thread, and waits for its read.
TEST_F(TwoReadsTest, AReadThatTwoThreadsWaitFor_EndsWhileOneGetsNoCpu) {
  const auto use_a_ring = [this] { help(*backend_, std::chrono::milliseconds{1}); };
  constexpr int kRounds = 20;  // more than the reads of a ring
  for (int round = 0; round < kRounds; ++round) {
    by_threads_ = 0;
    held_.reads = held_.stopped = true;
    Outcomes outcomes;
    std::jthread first([&] {
      const Piece small = piece(memory_, *file_, 4096, 4096);
      EXPECT_EQ(backend_->submit({&small, 1}, outcomes), 1U);
      help(*backend_, std::chrono::seconds{30});
    });
    ASSERT_TRUE(sleeps());
    for (int i = 0; i < 63; ++i) std::jthread{use_a_ring};
    std::jthread([this] { EXPECT_EQ(help(*backend_, std::chrono::seconds{30}), 0U); }).join();
    held_.reads = false;
    make_the_lane_look(*backend_);
    const bool ended = outcomes.wait(1);
    held_.stopped = false;
    ASSERT_TRUE(ended);
    ASSERT_EQ(by_threads_, 1) << "the ring has lost its reads in round " << round;
  }
}

// The lane's periodic looks do not help here: they are 250 s apart.
TEST_F(SmallReadsTest, WhatNobodyWaitsForEndsToo) {
  StorageOptions options;
  options.limit = std::chrono::seconds{1000};
  const auto backend = open_or_die(options);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Piece small = piece(memory_, *file_, i * 8192, 8192);
    Outcomes outcomes;
    ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
    ASSERT_TRUE(outcomes.wait(1));
    ASSERT_TRUE(right(i * 8192, 8192));
  }
}

TEST_F(SmallReadsTest, MoreThanARingHoldsGoToTheLane) {
  const auto backend = open_or_die(with([](const Request&) { return Fault{.error = EIO}; }));
  held_.reads = true;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit(reads(*file_, memory_, 100, 4096), outcomes), 100U);
  EXPECT_GT(by_threads_, 0);
  EXPECT_LT(by_threads_, 100);
  held_.reads = false;
  EXPECT_EQ(help(*backend, std::chrono::milliseconds{1}), 0U) << "the lane reads them again";
  EXPECT_TRUE(outcomes.wait(100));
}

TEST_F(SmallReadsTest, WhatAThreadSubmitsWithoutWaitingGoesToTheLane) {
  const auto backend = open_or_die(with(none));
  held_.reads = true;
  Data other(4096);
  const MemoryRange range(other, kDram);
  const Piece first = piece(memory_, *file_, 4096, 4096, 0);
  const Piece second = piece(range, *file_, 8192, 4096, 1);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&first, 1}, outcomes), 1U);
  ASSERT_EQ(backend->submit({&second, 1}, outcomes), 1U);
  ASSERT_TRUE(outcomes.wait(1));
  EXPECT_TRUE(outcomes.of(1));
  EXPECT_EQ(by_threads_, 1);
  EXPECT_EQ(by_lane_, 1);
  held_.reads = false;
  help_to_the_end(*backend, outcomes, 2);
  EXPECT_TRUE(outcomes.of(0));
}

TEST_F(SmallReadsTest, ALostReadIsCancelledAndTimesOut) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  const auto backend = open_or_die(with([](const Request&) { return Fault{.lost = true}; }, &time));
  const Piece small = piece(memory_, *file_, 4096, 4096);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
  EXPECT_EQ(outcomes.count(), 0U);
  time.passing = true;
  // Wakes the lane, since the time passes too fast for a real read.
  static_cast<void>(
      copy_now(*backend, {&memory_, 0, 64_KiB}, {file_.get(), 0, 64_KiB}).has_value());
  ASSERT_TRUE(outcomes.wait(1));
  ASSERT_FALSE(outcomes.of(0));
  EXPECT_EQ(outcomes.of(0).error().code, ErrorCode::timed_out);
  EXPECT_NE(outcomes.of(0).error().message.find("no answer"), std::string::npos);
  EXPECT_GE(clock.now(), std::chrono::seconds{30});
}

TEST_F(SmallReadsTest, ACancelledReadEndsThoughItIsLost) {
  ManualClock clock;
  FaultyQueue::Time time{.clock = clock};
  const auto backend =
      open_or_die(with([](const Request&) { return Fault{.lost = true, .deaf = 3}; }, &time));
  std::atomic<bool> cancelled = false;
  Piece small = piece(memory_, *file_, 4096, 4096, 7);
  small.cancelled = &cancelled;
  TimedOutcomes outcomes(clock);
  ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
  backend->cancel(kSsd);
  make_the_lane_look(*backend);
  EXPECT_EQ(held_.cancels, 0);
  cancelled = true;
  backend->cancel(kSsd);
  ASSERT_TRUE(eventually([this] { return held_.cancels > 0; }));
  time.passing = true;
  ASSERT_TRUE(outcomes.wait(1));
  EXPECT_LT(outcomes.last_end(), std::chrono::seconds{1});
  ASSERT_FALSE(outcomes.of(7));
  EXPECT_EQ(outcomes.of(7).error().code, ErrorCode::cancelled);
  EXPECT_EQ(by_lane_, 1) << "the large one";
}

TEST_F(SmallReadsTest, AReadCancelledBeforeItsSubmission_AsksNoDevice) {
  const auto backend = open_or_die(with(none));
  const std::atomic<bool> cancelled = true;
  Piece small = piece(memory_, *file_, 4096, 4096);
  small.cancelled = &cancelled;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
  ASSERT_TRUE(outcomes.wait(1));
  ASSERT_FALSE(outcomes.of(0));
  EXPECT_EQ(outcomes.of(0).error().code, ErrorCode::cancelled);
  EXPECT_EQ(by_threads_ + by_lane_, 0);
}

// Its ring gave it up, and the lane was about to read it again.
TEST_F(SmallReadsTest, AReadCancelledWhileItsRingFails_IsNotReadAgain) {
  std::atomic<bool> cancelled = false;
  const auto backend = open_or_die(with([](const Request&) { return Fault{.error = EAGAIN}; }));
  held_.reads = true;
  Piece small = piece(memory_, *file_, 4096, 4096);
  small.cancelled = &cancelled;
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
  cancelled = true;
  held_.reads = false;
  help_to_the_end(*backend, outcomes);
  ASSERT_FALSE(outcomes.of(0));
  EXPECT_EQ(outcomes.of(0).error().code, ErrorCode::cancelled);
  EXPECT_EQ(by_lane_, 0);
}

TEST_F(SmallReadsTest, APauseOfTheProcessIsNoTimeOut) {
  ManualClock clock;
  StorageOptions options = with(none);
  options.clock = &clock;
  const auto backend = open_or_die(options);
  held_.reads = true;
  const Piece small = piece(memory_, *file_, 4096, 4096);
  Outcomes outcomes;
  ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
  for (int pause = 0; pause < 10; ++pause) {
    clock.advance(std::chrono::hours{1});
    make_the_lane_look(*backend);
  }
  EXPECT_EQ(outcomes.count(), 0U);
  held_.reads = false;
  help_to_the_end(*backend, outcomes);
  EXPECT_TRUE(outcomes.of(0)) << outcomes.of(0).error().message;
  EXPECT_TRUE(right(4096, 4096));
}

// More threads than rings, so that some share one. They wait, and exit with reads in flight, for
// which the destructor waits.
TEST_F(SmallReadsTest, ManyThreadsReadAndWait) {
  constexpr std::uint64_t kThreads = 80;
  std::vector<Data> memories(kThreads, Data(16384));
  std::vector<std::unique_ptr<MemoryRange>> ranges;
  for (Data& memory : memories) ranges.push_back(std::make_unique<MemoryRange>(memory, kDram));
  Outcomes left;
  {
    const auto backend = open_or_die({.max_pieces = 1000});
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Random random(t);
        for (int i = 0; i < 20; ++i) {
          const std::uint64_t bytes = 1 + random.below(16384);
          const std::uint64_t offset = random.below(data_.size() - bytes);
          const Piece small = piece(*ranges[t], *file_, offset, bytes);
          Outcomes outcomes;
          ASSERT_EQ(backend->submit({&small, 1}, outcomes), 1U);
          backend->help(memories[t], std::chrono::milliseconds{10});
          ASSERT_TRUE(outcomes.wait(1));
          ASSERT_TRUE(outcomes.of(0));
          ASSERT_TRUE(
              same(std::span(memories[t]).first(bytes), std::span(data_).subspan(offset, bytes)));
        }
        const Piece last = piece(*ranges[t], *file_, t * 4096, 8192, t);
        ASSERT_EQ(backend->submit({&last, 1}, left), 1U);
      });
    }
  }
  EXPECT_EQ(left.well().size(), kThreads);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    EXPECT_TRUE(same(std::span(memories[t]).first(8192), std::span(data_).subspan(t * 4096, 8192)));
  }
}

}  // namespace
}  // namespace headrace
