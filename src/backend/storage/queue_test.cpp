// SPDX-License-Identifier: Apache-2.0
// Tests both queues and the shared ring, with a pipe that answers when it is written to.
#include "backend/storage/queue.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "backend/storage/storage_testing.h"

namespace headrace::storage {
namespace {

constexpr Nanoseconds kLong = std::chrono::seconds{60};

class Piped : public testing::Test {
 protected:
  Piped() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~Piped() override {
    for (const int end : ends_) close(end);
  }
  // Waits for the pipe. -1: the current position; a pipe has no other.
  Request request() {
    return {.fd = ends_[0], .memory = bytes_.data(), .bytes = bytes_.size(), .offset = ~0ULL};
  }
  Request bad() { return {.fd = -1, .memory = bytes_.data(), .bytes = bytes_.size()}; }
  void answer() const { ASSERT_EQ(write(ends_[1], "abc", 3), 3); }

  std::array<int, 2> ends_{};
  std::array<std::byte, 64> bytes_{};
};

class Queues : public Piped, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    auto opened = GetParam() ? open_threads(2, 64) : open_uring(8, {});
    if (!opened) GTEST_SKIP() << opened.error().message;
    queue_ = *std::move(opened);
  }
  // Waits for an ended request.
  std::vector<Finished> take() {
    std::vector<Finished> out;
    const Nanoseconds end = system_clock().now() + kLong;
    while (out.empty() && system_clock().now() < end) {
      queue_->wait(std::chrono::milliseconds{100}, out);
    }
    return out;
  }
  std::unique_ptr<Queue> queue_;
};
INSTANTIATE_TEST_SUITE_P(Both, Queues, testing::Bool(),
                         [](const auto& way) { return way.param ? "threads" : "uring"; });

TEST_P(Queues, AWakeEndsAWaitAndIsNotLostBeforeIt) {
  std::vector<Finished> none;
  const Nanoseconds begin = system_clock().now();
  queue_->wake();
  queue_->wait(kLong, none);
  std::thread waker([&] { queue_->wake(); });
  queue_->wait(kLong, none);
  waker.join();
  EXPECT_TRUE(none.empty());
  EXPECT_LT(system_clock().now() - begin, kLong);
}

TEST_P(Queues, CancelWhatHasNotBegun_AndGiveTheErrorOfTheSystem) {
  std::array<Request, 8> requests;
  requests.fill(bad());
  for (Request& each : requests) queue_->start(each);
  for (Request& each : requests) queue_->cancel(each);
  std::size_t ended = 0;
  while (ended < requests.size()) {
    const auto some = take();
    ASSERT_FALSE(some.empty());
    for (const Finished& one : some) {
      EXPECT_TRUE(one.result == -ECANCELED || one.result == -EBADF) << one.result;
    }
    ended += some.size();
  }
  EXPECT_EQ(ended, requests.size()) << "each once";
  Request last = bad();
  queue_->start(last);
  const auto failed = take();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].result, -EBADF);
}

// A thread cannot be stopped in its read.
TEST_P(Queues, CancelARequestThatTheKernelHolds) {
  if (GetParam()) GTEST_SKIP();
  Request held = request();
  queue_->start(held);
  std::vector<Finished> none;
  queue_->wait(Nanoseconds{0}, none);
  EXPECT_TRUE(none.empty());
  queue_->cancel(held);
  const auto ended = take();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].request, &held);
  EXPECT_TRUE(ended[0].result == -ECANCELED || ended[0].result == -EINTR) << ended[0].result;
}

class SharedRingTest : public Piped {
 protected:
  void SetUp() override {
    auto opened = open_shared_ring(4, event_);
    if (!opened) GTEST_SKIP() << opened.error().message;
    ring_ = *std::move(opened);
  }
  ~SharedRingTest() override {
    ring_.reset();
    close(event_);
  }
  void start(Request& request) {
    ring_->start(request);
    ASSERT_TRUE(ring_->send());
  }
  // Returns the ended reads.
  std::vector<Finished> take() {
    std::vector<Finished> out;
    const Nanoseconds end = system_clock().now() + kLong;
    while (out.empty() && system_clock().now() < end) {
      ring_->sleep(std::chrono::milliseconds{10});
      ring_->take(out, nullptr);
    }
    return out;
  }

  const int event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Request request_ = request();
  std::unique_ptr<SharedRing> ring_;
};

TEST_F(SharedRingTest, GivesBackEachEndOnce_AndAnnouncesItOnlyWhenAskedTo) {
  std::vector<Finished> none;
  for (const bool announces : {false, true, false}) {
    ring_->announce(announces);
    start(request_);
    ring_->take(none, nullptr);
    answer();
    const auto ended = take();
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].request, &request_);
    EXPECT_EQ(ended[0].result, 3);
    ring_->take(none, nullptr);
    EXPECT_TRUE(none.empty());
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(event_, &count) == 0, announces);
  }
}

TEST_F(SharedRingTest, CancelsARequestTheKernelHolds) {
  start(request_);
  ring_->cancel(request_);
  ASSERT_TRUE(ring_->send());
  const auto ended = take();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_TRUE(ended[0].result == -ECANCELED || ended[0].result == -EINTR) << ended[0].result;
}

TEST_F(SharedRingTest, CancellationsThatAreNotSent_LeaveAnEntryForEachRead) {
  std::array<Request, 4> reads{};
  for (Request& read : reads) {
    read = bad();
    ring_->start(read);
    for (int i = 0; i < 100; ++i) ring_->cancel(read);
  }
  ASSERT_TRUE(ring_->send());
  for (std::size_t ended = 0; ended < reads.size();) {
    const auto some = take();
    ASSERT_FALSE(some.empty());
    for (const Finished& one : some) EXPECT_LT(one.result, 0);
    ended += some.size();
  }
}

TEST_F(SharedRingTest, SleepEndsWithAnEndAndWithItsTime) {
  ring_->sleep(std::chrono::milliseconds{1});
  start(request_);
  std::thread answering([&] { answer(); });
  ring_->sleep(kLong);
  answering.join();
  std::vector<Finished> ended;
  ring_->take(ended, nullptr);
  EXPECT_EQ(ended.size(), 1U);
}

TEST_F(SharedRingTest, AKeptEndThatWasTaken_LetsNobodySleepUntilItIsLetGo) {
  start(request_);
  answer();
  std::vector<Finished> ended;
  ring_->sleep(kLong);
  ring_->take(ended, &request_);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].request, &request_);
  std::atomic<bool> slept = false;
  std::jthread sleeper([&] {
    ring_->sleep(std::chrono::hours{24});  // the next end ends it
    slept = true;
  });
  EXPECT_TRUE(test::eventually([&] { return slept.load(); }));
  Request other = bad();
  start(other);
  ended.clear();
  ring_->take(ended, &request_);
  ASSERT_EQ(ended.size(), 1U) << "it ended once";
  EXPECT_EQ(ended[0].request, &other);
  ended.clear();
  ring_->take(ended, nullptr);
  EXPECT_TRUE(ended.empty());
  start(request_);
  answer();
  EXPECT_EQ(take().size(), 1U);
}

// ThreadSanitizer saw writes in this memory, but neither that the memory was freed nor that a ring
// was mapped there. Therefore tests/tsan.txt must name all functions that touch a ring.
TEST_F(SharedRingTest, WhereAnEndedThreadsStackLay_IsNoRace) {
  std::atomic<bool> gone = false;
  std::thread other([&] {
    // Page by page, since the kernel chooses the highest gap that is large enough.
    std::array<void*, 64> pages{};
    for (void*& page : pages) {
      page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(page, 1, 4096);
    }
    for (void* page : pages) syscall(SYS_munmap, page, 4096);
    gone.store(true, std::memory_order_relaxed);  // pairs with nothing, on purpose
  });
  // pairs with the store only by its value
  while (!gone.load(std::memory_order_relaxed)) std::this_thread::yield();
  if (auto ring = open_shared_ring(4, event_)) {
    Request read = bad();
    (*ring)->start(read);
    EXPECT_TRUE((*ring)->send());
    std::vector<Finished> ended;
    while (ended.empty()) (*ring)->take(ended, nullptr);
  }
  other.join();
}

}  // namespace
}  // namespace headrace::storage
