// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/open_device.h"

#include <gtest/gtest.h>

#include "backend/dsa/queue/portal_testing.h"

namespace headrace::dsa {
namespace {

using namespace test;

// Several queues of one device, each with its own held device.
class OpenDeviceTest : public testing::Test {
 protected:
  Result<OpenDevice> open(std::vector<WorkQueue> queues) {
    Device device{.name = "dsa0", .queues = std::move(queues)};
    return OpenDevice::open(device, {.open = opener(), .limit = kLimit, .clock = &clock_});
  }
  Result<OpenDevice> open(unsigned count, std::uint32_t size = 8) {
    std::vector<WorkQueue> queues;
    for (unsigned i = 0; i < count; ++i) {
      queues.push_back(held_queue("wq0." + std::to_string(i), size));
    }
    return open(std::move(queues));
  }
  OpenPortal opener() {
    return [this](const WorkQueue& queue) {
      return held_[static_cast<std::size_t>(queue.name.back() - '0')].opener()(queue);
    };
  }

  ManualClock clock_;
  std::array<HeldDevice, 3> held_;
  Halves memory_{4096};
};

TEST_F(OpenDeviceTest, TheEmptiestTakesTheNext) {
  OpenDevice opened = open(2).value();
  ASSERT_TRUE(opened.submit(memory_.submissions(2, 100)));
  ASSERT_TRUE(opened.submit(memory_.submissions(1, 100)));
  EXPECT_EQ(opened.all()[0]->in_flight(), 2U);
  EXPECT_EQ(opened.all()[1]->in_flight(), 1U);
  EXPECT_EQ(opened.in_flight(), 3U);
  EXPECT_EQ(opened.room(), 16U);
}

TEST_F(OpenDeviceTest, WhatAllFailIsReportedOnce) {
  OpenDevice opened = open(3).value();
  ASSERT_TRUE(opened.submit(memory_.submissions(1, 4096)));
  std::vector<Ended> ended;
  for (int i = 0; i < 10; ++i) {
    for (HeldDevice& held : held_) {
      for (const Descriptor& each : std::exchange(held.taken, {})) answer(each, Code::hardware);
    }
    opened.poll(ended);
  }
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::io);
  EXPECT_EQ(opened.in_flight(), 0U);
}

TEST_F(OpenDeviceTest, ALostOneIsDoneByAnotherAfterItsPortalIsClosed) {
  OpenDevice opened = open(2).value();
  ASSERT_TRUE(opened.submit(memory_.submissions(1, 4096)));
  std::vector<Ended> ended;
  opened.poll(ended);
  EXPECT_TRUE(ended.empty());
  clock_.advance(kLimit + Nanoseconds{1});
  opened.poll(ended);
  EXPECT_EQ(held_[0].closes, 1U);
  ASSERT_EQ(held_[1].taken.size(), 1U);
  copy(held_[1].taken[0]);
  opened.poll(ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure, nullptr);
}

TEST_F(OpenDeviceTest, AFullNeighbourIsPassedOver) {
  OpenDevice opened = open(3, 1).value();
  ASSERT_EQ(opened.submit(memory_.submissions(1, 100)).value_or(0), 1U);
  ASSERT_EQ(opened.submit(memory_.submissions(1, 100)).value_or(0), 1U);
  answer(held_[0].taken.at(0), Code::hardware);
  std::vector<Ended> ended;
  opened.poll(ended);
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(held_[2].taken.size(), 1U);
}

TEST_F(OpenDeviceTest, AQueueThatTakesLess_CutsWhatAnotherGaveBack) {
  auto small = held_queue("wq0.1");
  small.max_transfer = 3000;
  OpenDevice opened = open({held_queue("wq0.0"), small}).value();
  EXPECT_EQ(opened.max_transfer(), 3000U);
  ASSERT_TRUE(opened.submit(memory_.submissions(1, 4096)));
  answer(held_[0].taken.at(0), Code::hardware);
  std::vector<Ended> ended;
  for (const std::size_t part : {0U, 1U}) {
    opened.poll(ended);
    EXPECT_TRUE(ended.empty());
    ASSERT_EQ(held_[1].taken.size(), part + 1);
    EXPECT_LE(held_[1].taken[part].size, 3000U);
    copy(held_[1].taken[part]);
  }
  opened.poll(ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure, nullptr);
  EXPECT_TRUE(memory_.equal());
}

TEST_F(OpenDeviceTest, AnErrorOnlyWhenNoneAnswersAnyMore) {
  OpenDevice opened = open(2, 1).value();
  ASSERT_EQ(opened.submit(memory_.submissions(1, 100)).value_or(0), 1U);
  // The second queue's portal closes, and cannot be opened again.
  held_[1].refusal = held_[1].closed = Error{ErrorCode::absent, "gone"};
  ASSERT_EQ(opened.submit(memory_.submissions(1, 100)).value_or(0), 1U);
  std::vector<Ended> ended;
  opened.poll(ended);
  EXPECT_EQ(opened.submit(memory_.submissions(1, 100)).value_or(9), 0U) << "the first is only full";
  held_[0].refusal = held_[0].closed = Error{ErrorCode::absent, "gone"};
  answer(held_[0].taken.at(0), Code::hardware);
  opened.poll(ended);
  opened.submit(memory_.submissions(1, 100)).value_or(9);
  opened.poll(ended);
  const auto refused = opened.submit(memory_.submissions(1, 100));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
}

TEST_F(OpenDeviceTest, WhatCannotBeOpenedIsLeftOut) {
  held_[0].closed = Error{ErrorCode::denied, "wq0.0 is not ours"};
  auto off = held_queue("wq0.1");
  off.unusable = "it is disabled";
  const auto some = open({held_queue("wq0.0"), off, held_queue("wq0.2")});
  ASSERT_TRUE(some);
  ASSERT_EQ(some->all().size(), 1U);
  EXPECT_EQ(some->all()[0]->queue().name, "wq0.2");
  const auto none = open({off, held_queue("wq0.0")});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
  EXPECT_EQ(none.error().message, "wq0.1: it is disabled; see headrace doctor");
  EXPECT_EQ(open({held_queue("wq0.0"), off}).error().code, ErrorCode::denied);
  EXPECT_EQ(open(0).error().message, "dsa0: it has no work queue; see headrace doctor");
}

}  // namespace
}  // namespace headrace::dsa
