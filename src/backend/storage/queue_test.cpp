// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "headrace/clock.h"

namespace headrace::storage {
namespace {

// A request that the kernel cannot serve until the pipe is written to.
struct Stuck {
  Stuck() { EXPECT_EQ(pipe(ends.data()), 0); }
  ~Stuck() {
    close(ends[0]);
    close(ends[1]);
  }
  std::array<int, 2> ends{};
  std::array<std::byte, 64> bytes{};
  Request request() {
    // -1: the current position; a pipe has no other.
    return {.fd = ends[0], .memory = bytes.data(), .bytes = bytes.size(), .offset = ~0ULL};
  }
};

// Waits for an ended request, for at most 30 s.
std::vector<Finished> wait_for_one(Queue& queue) {
  std::vector<Finished> out;
  const Nanoseconds end = system_clock().now() + std::chrono::seconds{30};
  while (out.empty() && system_clock().now() < end) {
    queue.wait(std::chrono::milliseconds{100}, out);
  }
  return out;
}

std::unique_ptr<Queue> open_ring() {
  auto queue = open_uring(8, {});
  return queue ? *std::move(queue) : nullptr;
}

TEST(UringQueue, CancelsARequestTheKernelHolds) {
  const auto queue = open_ring();
  if (!queue) GTEST_SKIP() << "io_uring is denied here";
  Stuck stuck;
  Request request = stuck.request();
  queue->start(request);
  std::vector<Finished> none;
  queue->wait(Nanoseconds{0}, none);
  EXPECT_TRUE(none.empty());
  queue->cancel(request);
  const auto ended = wait_for_one(*queue);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].request, &request);
  EXPECT_TRUE(ended[0].result == -ECANCELED || ended[0].result == -EINTR) << ended[0].result;
}

TEST(ThreadQueue, CancelsARequestThatNoThreadHasTaken) {
  const auto queue = open_threads(1, 64);
  ASSERT_TRUE(queue);
  Request bad{.fd = -1};
  std::array<std::byte, 8> bytes{};
  bad.memory = bytes.data();
  bad.bytes = bytes.size();
  std::array<Request, 8> requests;
  requests.fill(bad);
  for (Request& request : requests) (*queue)->start(request);
  for (Request& request : requests) (*queue)->cancel(request);
  std::size_t ended = 0;
  while (ended < requests.size()) {
    const auto some = wait_for_one(**queue);
    ASSERT_FALSE(some.empty());
    for (const Finished& one : some) {
      EXPECT_TRUE(one.result == -ECANCELED || one.result == -EBADF) << one.result;
    }
    ended += some.size();
  }
  EXPECT_EQ(ended, requests.size());  // each exactly once
}

class Queues : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Queue> open() {
    if (!GetParam()) return open_ring();
    return *open_threads(2, 64);
  }
};
INSTANTIATE_TEST_SUITE_P(Both, Queues, testing::Bool(),
                         [](const auto& way) { return way.param ? "threads" : "uring"; });

TEST_P(Queues, AWakeEndsAWaitAndIsNotLostBeforeIt) {
  const auto queue = open();
  if (!queue) GTEST_SKIP() << "io_uring is denied here";
  std::vector<Finished> none;
  const Nanoseconds begin = system_clock().now();
  queue->wake();
  queue->wait(std::chrono::seconds{60}, none);
  std::thread waker([&] { queue->wake(); });
  queue->wait(std::chrono::seconds{60}, none);
  waker.join();
  EXPECT_TRUE(none.empty());
  EXPECT_LT(system_clock().now() - begin, std::chrono::seconds{60});
}

TEST_P(Queues, GivesTheErrorOfTheSystem) {
  const auto queue = open();
  if (!queue) GTEST_SKIP() << "io_uring is denied here";
  std::array<std::byte, 8> bytes{};
  Request request{.fd = -1, .memory = bytes.data(), .bytes = bytes.size()};
  queue->start(request);
  const auto ended = wait_for_one(*queue);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].result, -EBADF);
}

}  // namespace
}  // namespace headrace::storage
