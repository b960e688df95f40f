// SPDX-License-Identifier: Apache-2.0
// Tests the shared ring, with a pipe that answers when it is written to.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "backend/storage/queue.h"
#include "backend/storage/storage_testing.h"
#include "headrace/clock.h"

namespace headrace::storage {
namespace {

constexpr Nanoseconds kLong = std::chrono::seconds{30};

class SharedRingTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(ends_.data()), 0);
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    auto opened = open_shared_ring(4, event_);
    if (!opened) GTEST_SKIP() << opened.error().message;
    ring_ = *std::move(opened);
  }
  void TearDown() override {
    ring_.reset();
    for (const int end : ends_) close(end);
    close(event_);
  }
  // Sends a request that waits for the pipe.
  void start() {
    // -1: the current position; a pipe has no other.
    request_ = {.fd = ends_[0], .memory = bytes_.data(), .bytes = bytes_.size(), .offset = ~0ULL};
    ring_->start(request_);
    ASSERT_TRUE(ring_->send());
  }
  void answer() { ASSERT_EQ(write(ends_[1], "abc", 3), 3); }
  // Returns the ended reads, after at most 30 s.
  std::vector<Finished> take() {
    std::vector<Finished> out;
    const Nanoseconds end = system_clock().now() + kLong;
    while (out.empty() && system_clock().now() < end) {
      ring_->sleep(std::chrono::milliseconds{10});
      ring_->take(out, nullptr);
    }
    return out;
  }
  bool announced() const {
    eventfd_t count = 0;
    return eventfd_read(event_, &count) == 0;
  }

  std::array<int, 2> ends_{};
  int event_ = -1;
  std::array<std::byte, 64> bytes_{};
  Request request_;
  std::unique_ptr<SharedRing> ring_;
};

TEST_F(SharedRingTest, GivesBackWhatHasEndedOnce) {
  start();
  std::vector<Finished> none;
  ring_->take(none, nullptr);
  EXPECT_TRUE(none.empty());
  answer();
  const auto ended = take();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].request, &request_);
  EXPECT_EQ(ended[0].result, 3);
  ring_->take(none, nullptr);
  EXPECT_TRUE(none.empty());
}

TEST_F(SharedRingTest, GivesTheErrorOfTheSystem) {
  request_ = {.fd = -1, .memory = bytes_.data(), .bytes = bytes_.size()};
  ring_->start(request_);
  ASSERT_TRUE(ring_->send());
  const auto ended = take();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].result, -EBADF);
}

TEST_F(SharedRingTest, CancelsARequestTheKernelHolds) {
  start();
  ring_->cancel(request_);
  ASSERT_TRUE(ring_->send());
  const auto ended = take();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].request, &request_);
  EXPECT_TRUE(ended[0].result == -ECANCELED || ended[0].result == -EINTR) << ended[0].result;
}

TEST_F(SharedRingTest, CancellationsThatAreNotSent_LeaveAnEntryForEachRead) {
  std::array<Request, 4> reads{};
  for (Request& read : reads) {
    read = {.fd = -1, .memory = bytes_.data(), .bytes = bytes_.size()};
    ring_->start(read);
    for (int i = 0; i < 100; ++i) ring_->cancel(read);
  }
  ASSERT_TRUE(ring_->send());
  std::size_t ended = 0;
  while (ended < reads.size()) {
    const std::size_t more = take().size();
    ASSERT_GT(more, 0U);
    ended += more;
  }
}

TEST_F(SharedRingTest, AnnouncesEndsOnlyWhenAskedTo) {
  start();
  answer();
  ASSERT_EQ(take().size(), 1U);
  EXPECT_FALSE(announced());
  ring_->announce(true);
  start();
  answer();
  ASSERT_EQ(take().size(), 1U);
  EXPECT_TRUE(announced());
  ring_->announce(false);
  start();
  answer();
  ASSERT_EQ(take().size(), 1U);
  EXPECT_FALSE(announced());
}

TEST_F(SharedRingTest, SleepEndsWithAnEndAndWithItsTime) {
  ring_->sleep(std::chrono::milliseconds{1});
  start();
  std::thread answering([&] { answer(); });
  ring_->sleep(kLong);
  answering.join();
  std::vector<Finished> ended;
  ring_->take(ended, nullptr);
  EXPECT_EQ(ended.size(), 1U);
}

TEST_F(SharedRingTest, AKeptEndThatWasTaken_LetsNobodySleepUntilItIsLetGo) {
  start();
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
  Request other = {.fd = -1, .memory = bytes_.data(), .bytes = bytes_.size()};
  ring_->start(other);
  ASSERT_TRUE(ring_->send());
  ended.clear();
  ring_->take(ended, &request_);
  ASSERT_EQ(ended.size(), 1U) << "it ended once";
  EXPECT_EQ(ended[0].request, &other);
  ended.clear();
  ring_->take(ended, nullptr);
  EXPECT_TRUE(ended.empty());
  start();
  answer();
  EXPECT_EQ(take().size(), 1U);
}

// ThreadSanitizer saw writes in this memory, but neither that the memory was freed nor that a ring
// was mapped there. Therefore tests/tsan.txt must name all functions that touch a ring.
TEST(SharedRing, WhereAnEndedThreadsStackLay_IsNoRace) {
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
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  auto ring = open_shared_ring(4, event);
  if (ring) {
    std::array<std::byte, 8> bytes{};
    Request request{.fd = -1, .memory = bytes.data(), .bytes = bytes.size()};
    (*ring)->start(request);
    EXPECT_TRUE((*ring)->send());
    std::vector<Finished> ended;
    while (ended.empty()) (*ring)->take(ended, nullptr);
  }
  other.join();
  close(event);
  if (!ring) GTEST_SKIP() << ring.error().message;
}

}  // namespace
}  // namespace headrace::storage
