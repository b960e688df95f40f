// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/open_queue.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backend/dsa/queue/portal_testing.h"
#include "headrace/random.h"

namespace headrace::dsa {
namespace {

using namespace test;

class OpenQueueTest : public testing::Test {
 protected:
  std::unique_ptr<OpenQueue> open(const WorkQueue& queue = held_queue()) {
    return OpenQueue::open(queue, {.open = device_.opener(), .limit = kLimit, .clock = &clock_})
        .value();
  }
  static std::vector<Ended> poll(OpenQueue& opened) {
    std::vector<Ended> ended;
    opened.poll(ended);
    return ended;
  }
  // Waits longer than `opened` waits for its work in flight.
  void let_limit_pass(OpenQueue& opened) {
    EXPECT_TRUE(poll(opened).empty());
    clock_.advance(kLimit + Nanoseconds{1});
  }
  static std::vector<std::uint64_t> tags(const std::vector<Ended>& ended) {
    std::vector<std::uint64_t> all;
    for (const Ended& each : ended) all.push_back(each.tag);
    std::ranges::sort(all);
    return all;
  }

  ManualClock clock_;
  HeldDevice device_;
  Halves memory_{4096};
};

using Tags = std::vector<std::uint64_t>;

TEST_F(OpenQueueTest, SeveralGoInABatchAndEndEachForItself) {
  const auto opened = open();
  EXPECT_EQ(opened->submit(memory_.submissions(4, 1024)).value_or(0), 4U);
  ASSERT_EQ(device_.taken.size(), 1U);
  const auto list = list_of(device_.taken[0]);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(device_.taken[0].source % 64, 0U);
  copy(list[2]);
  EXPECT_EQ(tags(poll(*opened)), (Tags{2}));
  for (const std::size_t i : {0U, 1U, 3U}) copy(list[i]);
  answer(device_.taken[0], Code::success, 4);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0, 1, 3}));
  EXPECT_TRUE(memory_.equal());
  EXPECT_EQ(opened->in_flight(), 0U);
  EXPECT_EQ(opened->stats().batches, 1U);
}

TEST_F(OpenQueueTest, WhatABatchWhoseListFaultedDidNotReachGoesOnAlone) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(4, 1024)));
  const auto list = list_of(device_.taken.at(0));
  copy(list[0]);
  copy(list[1]);
  answer(device_.taken[0], Code::batch_list_fault, 2);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0, 1}));
  ASSERT_EQ(device_.taken.size(), 3U);
  EXPECT_EQ(device_.offered, (std::vector<std::size_t>{1, 2}));
  for (const std::size_t i : {1U, 2U}) {
    ASSERT_EQ(device_.taken[i].opcode(), Opcode::memmove);
    copy(device_.taken[i]);
  }
  EXPECT_EQ(tags(poll(*opened)), (Tags{2, 3}));
  EXPECT_TRUE(memory_.equal());
}

// The record of the second is lost, so its progress is unknown, and it waits for the limit.
TEST_F(OpenQueueTest, WhatABatchDidReachIsNotDoneTwice) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(4, 1024)));
  copy(list_of(device_.taken.at(0))[0]);
  answer(device_.taken[0], Code::batch_list_fault, 2);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0}));
  ASSERT_EQ(device_.taken.size(), 3U);
  copy(device_.taken[1]);
  copy(device_.taken[2]);
  EXPECT_EQ(tags(poll(*opened)), (Tags{2, 3}));
  clock_.advance(kLimit + Nanoseconds{1});
  const auto lost = poll(*opened);
  ASSERT_EQ(tags(lost), (Tags{1}));
  EXPECT_EQ(lost[0].failure->why.code, ErrorCode::timed_out);
}

TEST_F(OpenQueueTest, ABatchThatIsRefusedAsAWholeGoesOnAlone) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(4, 1024)));
  answer(device_.taken.at(0), Code::bad_count, 77);
  EXPECT_TRUE(poll(*opened).empty());
  ASSERT_EQ(device_.taken.size(), 5U);
  for (std::size_t i = 1; i < 5; ++i) copy(device_.taken[i]);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0, 1, 2, 3}));
  EXPECT_TRUE(memory_.equal());
}

TEST_F(OpenQueueTest, SlotsAreUsedAgainBeforeTheirBatchsOwnRecordCame) {
  const auto opened = open(held_queue("wq0.0", 2));
  ASSERT_EQ(opened->submit(memory_.submissions(4, 1024)).value_or(0), 2U);
  const Descriptor first = device_.taken.at(0);
  for (const Descriptor& each : list_of(first)) copy(each);
  EXPECT_EQ(poll(*opened).size(), 2U);
  ASSERT_EQ(opened->submit({{memory_.submission(2048, 1024, 2), memory_.submission(3072, 1024, 3)}})
                .value_or(0),
            2U);
  ASSERT_EQ(device_.taken.size(), 2U);
  const Descriptor second = device_.taken[1];
  EXPECT_NE(second.source, first.source) << "the first list may still be read";
  EXPECT_NE(second.record, first.record);
  // The worst answer: the new copies in its slots do not belong to it.
  answer(first, Code::batch_list_fault, 0);
  EXPECT_TRUE(poll(*opened).empty());
  EXPECT_EQ(device_.taken.size(), 2U);
  for (const Descriptor& each : list_of(second)) copy(each);
  EXPECT_EQ(tags(poll(*opened)), (Tags{2, 3}));
  EXPECT_TRUE(memory_.equal());
}

TEST_F(OpenQueueTest, AFullSharedQueueKeepsOrderAndLosesNothing) {
  for (const bool batches : {false, true}) {
    HeldDevice device{.batches = batches, .room = 3};
    const auto opened =
        OpenQueue::open(held_queue(), {.open = device.opener(), .clock = &clock_, .at_once = 4})
            .value();
    EXPECT_EQ(opened->submit(memory_.submissions(16, 256)).value_or(0), 16U);
    std::vector<Descriptor> reached;
    for (int round = 0; round < 20; ++round) {
      for (const Descriptor& each : std::exchange(device.taken, {})) {
        if (each.opcode() != Opcode::batch) {
          reached.push_back(each);
          continue;
        }
        for (const Descriptor& member : list_of(each)) reached.push_back(member);
      }
      device.room = static_cast<std::size_t>(round) % 3;
      EXPECT_TRUE(poll(*opened).empty());
    }
    ASSERT_EQ(reached.size(), 16U);
    EXPECT_TRUE(std::ranges::is_sorted(reached, {}, &Descriptor::source));
    for (const Descriptor& each : reached) copy(each);
    EXPECT_EQ(poll(*opened).size(), 16U);
    EXPECT_TRUE(memory_.equal());
  }
}

TEST_F(OpenQueueTest, NeverMoreIsUnderWayThanTheQueueHolds) {
  WorkQueue dedicated = held_queue("wq0.0", 3);
  dedicated.shared = false;
  dedicated.threshold = 0;
  const auto opened = open(dedicated);
  EXPECT_EQ(opened->room(), 3U);
  EXPECT_EQ(opened->submit(memory_.submissions(10, 100)).value_or(0), 3U);
  EXPECT_EQ(opened->submit(memory_.submissions(10, 100)).value_or(9), 0U);
  EXPECT_EQ(list_of(device_.taken.at(0)).size(), 3U);
}

TEST_F(OpenQueueTest, AQueueThatHoldsNothingIsNotOpened) {
  const auto opened = OpenQueue::open(held_queue("wq0.0", 0), {.open = device_.opener()});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unsupported);
  EXPECT_EQ(device_.opens, 0U);
}

TEST_F(OpenQueueTest, WhatIsNotAnsweredInTimeEndsThePortal) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(2, 100)));
  clock_.advance(2 * kLimit);
  EXPECT_TRUE(poll(*opened).empty()) << "it may be the poll that is late";
  clock_.advance(kLimit);
  EXPECT_TRUE(poll(*opened).empty());
  EXPECT_EQ(device_.closes, 0U);
  clock_.advance(Nanoseconds{1});
  const auto ended = poll(*opened);
  EXPECT_EQ(device_.closes, 1U) << "so that nothing is written any more";
  ASSERT_EQ(tags(ended), (Tags{0, 1}));
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::timed_out);
  EXPECT_EQ(opened->in_flight(), 0U);
}

// LightDSA retries for ever, or exits.
TEST_F(OpenQueueTest, AQueueThatStaysFullIsGivenUp) {
  device_.room = 0;
  const auto opened = open();
  ASSERT_EQ(opened->submit(memory_.submissions(4, 1024)).value_or(0), 4U);
  let_limit_pass(*opened);
  const auto ended = poll(*opened);
  ASSERT_EQ(tags(ended), (Tags{0, 1, 2, 3}));
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::timed_out);
}

// Other processes keep the shared queue full until shortly before the limit.
TEST_F(OpenQueueTest, TheWaitForAnAnswerBeginsWhenItIsHandedOver) {
  device_.batches = false;
  device_.room = 0;
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(1, 4096)));
  EXPECT_TRUE(poll(*opened).empty());
  clock_.advance(kLimit - Nanoseconds{1});
  device_.room = 9;
  EXPECT_TRUE(poll(*opened).empty());
  ASSERT_EQ(device_.taken.size(), 1U);
  clock_.advance(kLimit);
  EXPECT_TRUE(poll(*opened).empty());
  clock_.advance(kLimit);
  copy(device_.taken[0]);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0}));
  EXPECT_EQ(device_.closes, 0U);
}

// The time of a copy's second part does not include the first part, or a late poll.
TEST_F(OpenQueueTest, EachPartWaitsForItself) {
  device_.batches = false;
  WorkQueue queue = held_queue();
  queue.max_transfer = 2048;
  const auto opened = open(queue);
  ASSERT_TRUE(opened->submit(memory_.submissions(1, 4096)));
  copy(device_.taken.at(0));
  EXPECT_TRUE(poll(*opened).empty());
  ASSERT_EQ(device_.taken.size(), 2U);
  clock_.advance(2 * kLimit);
  EXPECT_TRUE(poll(*opened).empty()) << "the poll is late";
  copy(device_.taken[1]);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0}));
  EXPECT_EQ(device_.closes, 0U);
}

TEST_F(OpenQueueTest, WhatEndsWhileThePortalClosesHasEnded) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit({{memory_.submission(0, 4096)}}));
  device_.late = device_.taken;
  let_limit_pass(*opened);
  const auto ended = poll(*opened);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure, nullptr);
  EXPECT_TRUE(memory_.equal());
}

TEST_F(OpenQueueTest, APortalThatNeverAnsweredIsNotOpenedAnewBeforeTheLimit) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(1, 100)));
  let_limit_pass(*opened);
  EXPECT_EQ(poll(*opened).size(), 1U);
  const auto refused = opened->submit(memory_.submissions(1, 100));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
  EXPECT_FALSE(opened->take_over({.failure = std::make_unique<Failure>()}));
  EXPECT_EQ(device_.opens, 1U);
  clock_.advance(kLimit);
  EXPECT_EQ(opened->submit(memory_.submissions(1, 100)).value_or(0), 1U);
  EXPECT_EQ(device_.opens, 2U);
}

TEST_F(OpenQueueTest, OneThatHadAnsweredIsOpenedAtOnce) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(1, 100)));
  copy(device_.taken.at(0));
  EXPECT_EQ(poll(*opened).size(), 1U);
  ASSERT_TRUE(opened->submit(memory_.submissions(1, 100)));
  let_limit_pass(*opened);
  EXPECT_EQ(poll(*opened).size(), 1U);
  EXPECT_EQ(device_.closes, 1U);
  EXPECT_EQ(opened->submit(memory_.submissions(1, 100)).value_or(0), 1U);
  EXPECT_EQ(device_.opens, 2U);
}

// One copy faulted, another is lost. The first one is touched while there is no portal. It
// continues in the next portal from its last byte.
TEST_F(OpenQueueTest, WhatIsTouchedWhileThePortalClosesGoesOn) {
  device_.batches = false;
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(2, 2048)));
  let_limit_pass(*opened);
  std::memcpy(reinterpret_cast<void*>(device_.taken.at(0).destination),
              reinterpret_cast<void*>(device_.taken[0].source), 500);
  answer(device_.taken[0], static_cast<Code>(0x83), 500);
  const auto lost = poll(*opened);
  EXPECT_EQ(tags(lost), (Tags{1}));
  ASSERT_EQ(device_.taken.size(), 3U);
  EXPECT_EQ(device_.opens, 2U);
  EXPECT_EQ(device_.taken[2].size, 1548U);
  copy(device_.taken[2]);
  const auto ended = poll(*opened);
  EXPECT_EQ(tags(ended), (Tags{0}));
  EXPECT_EQ(ended[0].failure, nullptr);
}

TEST_F(OpenQueueTest, FaultsWithoutEndEnd) {
  const auto opened = open();
  ASSERT_TRUE(opened->submit({{memory_.submission(0, 4096)}}));
  std::vector<Ended> ended;
  for (int i = 0; i < 1000 && ended.empty(); ++i) {
    answer(device_.taken.back(), Code::page_fault);
    ended = poll(*opened);
  }
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::io);
}

TEST_F(OpenQueueTest, AnyErrorStatus_IsAFailureThatNamesIt) {
  const auto opened = open();
  for (const int status : {0x02, 0x07, 0x10, 0x1e, 0x20, 0x3b}) {
    ASSERT_TRUE(opened->submit(memory_.submissions(1, 100)));
    answer(device_.taken.back(), static_cast<Code>(status));
    const auto ended = poll(*opened);
    ASSERT_EQ(ended.size(), 1U);
    const Failure& failure = *ended[0].failure;
    EXPECT_EQ(failure.why.code, ErrorCode::io);
    EXPECT_NE(failure.why.message.find(fmt::format("{:#04x}", status)), std::string::npos)
        << failure.why.message;
    EXPECT_EQ(failure.rest.rest().bytes, 100U);
  }
}

// libfabric loops forever when its write() fails with EPERM.
TEST_F(OpenQueueTest, LibfabricAPortalThatRefusesForGoodIsNoEndlessLoop) {
  const auto opened = open();
  device_.refusal = Error{ErrorCode::denied, "no more"};
  ASSERT_TRUE(opened->submit(memory_.submissions(3, 100)));
  const auto ended = poll(*opened);
  ASSERT_EQ(tags(ended), (Tags{0, 1, 2})) << "at once, not after the limit";
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::denied);
  EXPECT_EQ(device_.closes, 1U);
  EXPECT_LE(device_.offered.size(), 2U);
}

TEST_F(OpenQueueTest, WhatIsUnderWayInAPortalThatRefusesMayStillEnd) {
  device_.batches = false;
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(1, 100)));
  device_.refusal = Error{ErrorCode::absent, "disabled"};
  ASSERT_TRUE(opened->submit({{memory_.submission(100, 100, 1)}}));
  EXPECT_EQ(tags(poll(*opened)), (Tags{1}));
  EXPECT_EQ(device_.closes, 0U);
  copy(device_.taken.at(0));
  const auto ended = poll(*opened);
  ASSERT_EQ(tags(ended), (Tags{0}));
  EXPECT_EQ(ended[0].failure, nullptr);
}

TEST_F(OpenQueueTest, ADescriptorRefusedForItsOwnSakeHoldsUpNobody) {
  device_.batches = false;
  device_.refuses = [](const Descriptor& each) { return each.size == 1000; };
  const auto opened = open();
  auto submissions = memory_.submissions(4, 1024);
  submissions[1].copy.bytes = 1000;
  ASSERT_TRUE(opened->submit(submissions));
  std::vector<Ended> ended;
  for (int i = 0; i < 5; ++i) opened->poll(ended);
  ASSERT_EQ(tags(ended), (Tags{1}));
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::unsupported);
  EXPECT_EQ(device_.taken.size(), 3U);
}

// Like a kernel that no longer takes batches: their members are not the cause.
TEST_F(OpenQueueTest, ABatchThatThePortalRefusesGoesOnAlone) {
  device_.refuses = [](const Descriptor& each) { return each.opcode() == Opcode::batch; };
  const auto opened = open();
  ASSERT_TRUE(opened->submit(memory_.submissions(4, 1024)));
  std::vector<Ended> ended;
  for (int i = 0; i < 5; ++i) opened->poll(ended);
  EXPECT_TRUE(ended.empty());
  ASSERT_EQ(device_.taken.size(), 4U);
  for (const Descriptor& each : device_.taken) copy(each);
  EXPECT_EQ(tags(poll(*opened)), (Tags{0, 1, 2, 3}));
  EXPECT_TRUE(memory_.equal());
}

// Answers the device's descriptors in any order, with any result; a batch after its members.
class Whims {
 public:
  Whims(HeldDevice& device, std::uint64_t seed) : device_(device), random_(seed) {}

  void next(ManualClock& clock) {
    unpack();
    for (std::size_t left = random_.below(6); left > 0 && !open_.empty(); --left) answer_one();
    device_.room = random_.below(5);
    device_.refusal.reset();
    if (random_.below(30) == 0) device_.refusal = Error{ErrorCode::absent, "whim"};
    device_.closed.reset();
    if (random_.below(10) == 0) device_.closed = Error{ErrorCode::absent, "whim"};
    if (random_.below(50) == 0) clock.advance(2 * kLimit);
    // A closed portal's records are never written.
    if (std::exchange(closes_, device_.closes) != device_.closes) open_.clear();
  }
  void forget_closed() {
    if (std::exchange(closes_, device_.closes) == device_.closes) return;
    open_.clear();
    device_.taken.clear();
  }

 private:
  void unpack() {
    for (const Descriptor& each : std::exchange(device_.taken, {})) {
      if (each.opcode() != Opcode::batch) {
        open_.push_back(each);
        continue;
      }
      const auto list = list_of(each);
      const std::size_t reached = random_.below(3) == 0 ? random_.below(list.size()) : list.size();
      for (const Descriptor& member : list.first(reached)) answer_with(member);
      answer(each, reached < list.size() ? Code::batch_list_fault : Code::success,
             static_cast<std::uint32_t>(reached));
    }
  }
  void answer_one() {
    const std::size_t which = random_.below(open_.size());
    answer_with(open_[which]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void answer_with(const Descriptor& each) {
    switch (random_.below(6)) {
      case 0: {
        const auto done = static_cast<std::uint32_t>(random_.below(each.size));
        std::memcpy(reinterpret_cast<void*>(each.destination),
                    reinterpret_cast<const void*>(each.source), done);
        answer(each, static_cast<Code>(0x83), done);
        break;
      }
      case 1: answer(each, Code::hardware); break;
      default: copy(each);
    }
  }

  HeldDevice& device_;
  Random random_;
  std::vector<Descriptor> open_;
  unsigned closes_ = 0;
};

TEST_F(OpenQueueTest, WhateverHappensEachJobEndsOnce) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    HeldDevice device{.batches = seed % 2 == 0};
    Whims whims(device, seed);
    Random random(seed + 1000);
    const auto opened =
        OpenQueue::open(held_queue("wq0.0", 8),
                        {.open = device.opener(), .limit = kLimit, .clock = &clock_})
            .value();
    constexpr std::uint64_t kJobs = 64;
    std::vector<Ended> ended;
    std::uint64_t submitted = 0;
    for (int round = 0; round < 5000 && ended.size() < kJobs; ++round) {
      if (submitted < kJobs) {
        const std::uint64_t many = std::min(random.below(5), kJobs - submitted);
        std::vector<Submission> submissions;
        for (std::uint64_t i = 0; i < many; ++i) {
          submissions.push_back(memory_.submission((submitted + i) * 64, 64, submitted + i));
        }
        submitted += opened->submit(submissions).value_or(0);
      }
      whims.next(clock_);
      opened->poll(ended);
      whims.forget_closed();
    }
    ASSERT_EQ(ended.size(), kJobs) << seed;
    std::map<std::uint64_t, int> times;
    for (const Ended& each : ended) {
      EXPECT_EQ(++times[each.tag], 1) << seed;
    }
    EXPECT_EQ(opened->in_flight(), 0U);
  }
}

}  // namespace
}  // namespace headrace::dsa
