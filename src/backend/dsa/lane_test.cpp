#include "backend/dsa/lane.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "backend/dsa/portal_testing.h"
#include "headrace/random.h"

namespace headrace::dsa {
namespace {

using namespace test;

class LaneTest : public testing::Test {
 protected:
  std::unique_ptr<Lane> open(const WorkQueue& queue = held_queue()) {
    return Lane::open(queue, {.open = device_.opener(), .limit = kLimit, .clock = &clock_}).value();
  }
  static std::vector<Ended> poll(Lane& lane) {
    std::vector<Ended> ended;
    lane.poll(ended);
    return ended;
  }
  // Longer than `lane` waits for what it has under way now.
  void let_limit_pass(Lane& lane) {
    EXPECT_TRUE(poll(lane).empty());
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

TEST_F(LaneTest, SeveralGoInABatchAndEndEachForItself) {
  const auto lane = open();
  EXPECT_EQ(lane->submit(memory_.orders(4, 1024)).value_or(0), 4U);
  ASSERT_EQ(device_.taken.size(), 1U);
  const auto list = list_of(device_.taken[0]);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(device_.taken[0].source % 64, 0U);
  copy(list[2]);
  EXPECT_EQ(tags(poll(*lane)), (Tags{2}));
  for (const std::size_t i : {0U, 1U, 3U}) copy(list[i]);
  answer(device_.taken[0], Code::success, 4);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0, 1, 3}));
  EXPECT_TRUE(memory_.equal());
  EXPECT_EQ(lane->under_way(), 0U);
  EXPECT_EQ(lane->stats().batches, 1U);
  EXPECT_EQ(lane->stats().descriptors, 4U);
}

TEST_F(LaneTest, WhatABatchWhoseListFaultedDidNotReachGoesOnAlone) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(4, 1024)));
  const auto list = list_of(device_.taken.at(0));
  copy(list[0]);
  copy(list[1]);
  answer(device_.taken[0], Code::batch_list_fault, 2);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0, 1}));
  ASSERT_EQ(device_.taken.size(), 3U);
  EXPECT_EQ(device_.offered, (std::vector<std::size_t>{1, 2}));
  for (const std::size_t i : {1U, 2U}) {
    ASSERT_EQ(device_.taken[i].opcode(), Opcode::memmove);
    copy(device_.taken[i]);
  }
  EXPECT_EQ(tags(poll(*lane)), (Tags{2, 3}));
  EXPECT_TRUE(memory_.equal());
}

// The record of the second is lost: it is not known how far it came, so it waits for the limit.
TEST_F(LaneTest, WhatABatchDidReachIsNotDoneTwice) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(4, 1024)));
  copy(list_of(device_.taken.at(0))[0]);
  answer(device_.taken[0], Code::batch_list_fault, 2);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0}));
  ASSERT_EQ(device_.taken.size(), 3U);
  copy(device_.taken[1]);
  copy(device_.taken[2]);
  EXPECT_EQ(tags(poll(*lane)), (Tags{2, 3}));
  clock_.advance(kLimit + Nanoseconds{1});
  const auto lost = poll(*lane);
  ASSERT_EQ(tags(lost), (Tags{1}));
  EXPECT_EQ(lost[0].failure->why.code, ErrorCode::timed_out);
  EXPECT_TRUE(lost[0].failure->undefined);
}

TEST_F(LaneTest, ABatchThatIsRefusedAsAWholeGoesOnAlone) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(4, 1024)));
  answer(device_.taken.at(0), Code::bad_count, 77);
  EXPECT_TRUE(poll(*lane).empty());
  ASSERT_EQ(device_.taken.size(), 5U);
  for (std::size_t i = 1; i < 5; ++i) copy(device_.taken[i]);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0, 1, 2, 3}));
  EXPECT_TRUE(memory_.equal());
}

TEST_F(LaneTest, SlotsAreUsedAgainBeforeTheirBatchsOwnRecordCame) {
  const auto lane = open(held_queue("wq0.0", 2));
  ASSERT_EQ(lane->submit(memory_.orders(4, 1024)).value_or(0), 2U);
  const Descriptor first = device_.taken.at(0);
  for (const Descriptor& each : list_of(first)) copy(each);
  EXPECT_EQ(poll(*lane).size(), 2U);
  ASSERT_EQ(
      lane->submit({{memory_.order(2048, 1024, 2), memory_.order(3072, 1024, 3)}}).value_or(0), 2U);
  ASSERT_EQ(device_.taken.size(), 2U);
  const Descriptor second = device_.taken[1];
  EXPECT_NE(second.source, first.source) << "the first list may still be read";
  EXPECT_NE(second.record, first.record);
  // The worst it can say: the new ones in its slots are none of its business.
  answer(first, Code::batch_list_fault, 0);
  EXPECT_TRUE(poll(*lane).empty());
  EXPECT_EQ(device_.taken.size(), 2U);
  for (const Descriptor& each : list_of(second)) copy(each);
  EXPECT_EQ(tags(poll(*lane)), (Tags{2, 3}));
  EXPECT_TRUE(memory_.equal());
}

TEST_F(LaneTest, AFullSharedQueueKeepsOrderAndLosesNothing) {
  for (const bool batches : {false, true}) {
    HeldDevice device{.batches = batches, .room = 3};
    const auto lane =
        Lane::open(held_queue(), {.open = device.opener(), .clock = &clock_, .at_once = 4}).value();
    EXPECT_EQ(lane->submit(memory_.orders(16, 256)).value_or(0), 16U);
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
      EXPECT_TRUE(poll(*lane).empty());
    }
    ASSERT_EQ(reached.size(), 16U);
    EXPECT_TRUE(std::ranges::is_sorted(reached, {}, &Descriptor::source));
    for (const Descriptor& each : reached) copy(each);
    EXPECT_EQ(poll(*lane).size(), 16U);
    EXPECT_TRUE(memory_.equal());
    EXPECT_GT(lane->stats().refused, 0U);
  }
}

// Behind one that was refused nothing overtakes.
TEST_F(LaneTest, WhatComesLaterWaitsBehind) {
  device_.batches = false;
  device_.room = 0;
  const auto lane = open();
  ASSERT_TRUE(lane->submit({{memory_.order(0, 100, 1)}}));
  device_.room = 100;
  ASSERT_TRUE(lane->submit({{memory_.order(100, 100, 2)}}));
  ASSERT_EQ(device_.taken.size(), 2U);
  EXPECT_LT(device_.taken[0].source, device_.taken[1].source);
}

TEST_F(LaneTest, NeverMoreIsUnderWayThanTheQueueHolds) {
  WorkQueue dedicated = held_queue("wq0.0", 3);
  dedicated.shared = false;
  dedicated.threshold = 0;
  const auto lane = open(dedicated);
  EXPECT_EQ(lane->room(), 3U);
  EXPECT_EQ(lane->submit(memory_.orders(10, 100)).value_or(0), 3U);
  EXPECT_EQ(lane->submit(memory_.orders(10, 100)).value_or(9), 0U);
  EXPECT_EQ(list_of(device_.taken.at(0)).size(), 3U);
}

TEST_F(LaneTest, AQueueThatHoldsNothingIsNotOpened) {
  const auto lane = Lane::open(held_queue("wq0.0", 0), {.open = device_.opener()});
  ASSERT_FALSE(lane);
  EXPECT_EQ(lane.error().code, ErrorCode::unsupported);
  EXPECT_EQ(device_.opens, 0U);
}

// SPEC 8.3.2.
TEST_F(LaneTest, ADrainIsNoPartOfABatch) {
  const auto lane = open();
  auto orders = memory_.orders(4, 1024);
  orders[1].operation = {.opcode = Opcode::drain};
  ASSERT_TRUE(lane->submit(orders));
  ASSERT_EQ(device_.taken.size(), 3U);
  EXPECT_EQ(device_.taken[1].opcode(), Opcode::drain);
}

TEST_F(LaneTest, WhatIsNotAnsweredInTimeEndsThePortal) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(2, 100)));
  clock_.advance(2 * kLimit);
  EXPECT_TRUE(poll(*lane).empty()) << "it may be the poll that is late";
  clock_.advance(kLimit);
  EXPECT_TRUE(poll(*lane).empty());
  EXPECT_EQ(device_.closes, 0U);
  clock_.advance(Nanoseconds{1});
  const auto ended = poll(*lane);
  EXPECT_EQ(device_.closes, 1U) << "so that nothing is written any more";
  ASSERT_EQ(tags(ended), (Tags{0, 1}));
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::timed_out);
  EXPECT_TRUE(ended[0].failure->undefined);
  EXPECT_EQ(lane->under_way(), 0U);
  EXPECT_EQ(lane->stats().lost, 2U);
}

// A shared queue that others keep full, until shortly before the limit.
TEST_F(LaneTest, TheWaitForAnAnswerBeginsWhenItIsHandedOver) {
  device_.batches = false;
  device_.room = 0;
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(1, 4096)));
  EXPECT_TRUE(poll(*lane).empty());
  clock_.advance(kLimit - Nanoseconds{1});
  device_.room = 9;
  EXPECT_TRUE(poll(*lane).empty());
  ASSERT_EQ(device_.taken.size(), 1U);
  clock_.advance(kLimit);
  EXPECT_TRUE(poll(*lane).empty());
  clock_.advance(kLimit);
  copy(device_.taken[0]);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0}));
  EXPECT_EQ(device_.closes, 0U);
}

// Nor does the second part of a copy pay for the first, or for a caller that polls late.
TEST_F(LaneTest, EachPartWaitsForItself) {
  device_.batches = false;
  WorkQueue queue = held_queue();
  queue.max_transfer = 2048;
  const auto lane = open(queue);
  ASSERT_TRUE(lane->submit(memory_.orders(1, 4096)));
  copy(device_.taken.at(0));
  EXPECT_TRUE(poll(*lane).empty());
  ASSERT_EQ(device_.taken.size(), 2U);
  clock_.advance(2 * kLimit);
  EXPECT_TRUE(poll(*lane).empty()) << "the poll is late";
  copy(device_.taken[1]);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0}));
  EXPECT_EQ(device_.closes, 0U);
}

TEST_F(LaneTest, WhatEndsWhileThePortalClosesHasEnded) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit({{memory_.order(0, 4096)}}));
  device_.late = device_.taken;
  let_limit_pass(*lane);
  const auto ended = poll(*lane);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure, nullptr);
  EXPECT_TRUE(memory_.equal());
}

TEST_F(LaneTest, APortalThatNeverAnsweredIsNotOpenedAnewBeforeTheLimit) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(1, 100)));
  let_limit_pass(*lane);
  EXPECT_EQ(poll(*lane).size(), 1U);
  const auto refused = lane->submit(memory_.orders(1, 100));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
  EXPECT_FALSE(lane->take_over(Job()));
  EXPECT_EQ(device_.opens, 1U);
  clock_.advance(kLimit);
  EXPECT_EQ(lane->submit(memory_.orders(1, 100)).value_or(0), 1U);
  EXPECT_EQ(device_.opens, 2U);
  EXPECT_EQ(lane->stats().reopened, 1U);
}

TEST_F(LaneTest, OneThatHadAnsweredIsOpenedAtOnce) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(1, 100)));
  copy(device_.taken.at(0));
  EXPECT_EQ(poll(*lane).size(), 1U);
  ASSERT_TRUE(lane->submit(memory_.orders(1, 100)));
  let_limit_pass(*lane);
  EXPECT_EQ(poll(*lane).size(), 1U);
  EXPECT_EQ(device_.closes, 1U);
  EXPECT_EQ(lane->submit(memory_.orders(1, 100)).value_or(0), 1U);
  EXPECT_EQ(device_.opens, 2U);
}

// One faulted, another is lost: the first is touched while there is no portal, and goes on in the
// next one from where it was.
TEST_F(LaneTest, WhatIsTouchedWhileThePortalClosesGoesOn) {
  device_.batches = false;
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(2, 2048)));
  let_limit_pass(*lane);
  std::memcpy(reinterpret_cast<void*>(device_.taken.at(0).destination),
              reinterpret_cast<void*>(device_.taken[0].source), 500);
  answer(device_.taken[0], static_cast<Code>(0x83), 500);
  const auto lost = poll(*lane);
  EXPECT_EQ(tags(lost), (Tags{1}));
  ASSERT_EQ(device_.taken.size(), 3U);
  EXPECT_EQ(device_.opens, 2U);
  EXPECT_EQ(device_.taken[2].size, 1548U);
  copy(device_.taken[2]);
  const auto ended = poll(*lane);
  EXPECT_EQ(tags(ended), (Tags{0}));
  EXPECT_EQ(ended[0].failure, nullptr);
}

TEST_F(LaneTest, MemoryThatIsNotThereIsAnErrorNotACrash) {
  void* const hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto lane = open();
  Order order = memory_.order(0, 100);
  order.operation.destination = reinterpret_cast<std::uintptr_t>(hole);
  ASSERT_TRUE(lane->submit({{order}}));
  answer(device_.taken.at(0), static_cast<Code>(0x83));
  const auto ended = poll(*lane);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::invalid);
  EXPECT_EQ(device_.taken.size(), 1U);
  munmap(hole, 4096);
}

TEST_F(LaneTest, FaultsWithoutEndEnd) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit({{memory_.order(0, 4096)}}));
  std::vector<Ended> ended;
  for (int i = 0; i < 1000 && ended.empty(); ++i) {
    answer(device_.taken.back(), Code::page_fault);
    ended = poll(*lane);
  }
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::io);
  EXPECT_FALSE(ended[0].failure->undefined);
}

// What a check refused was not begun; of what failed otherwise nobody knows how much was done.
TEST_F(LaneTest, AFailureTellsWhetherItWasBegun) {
  const auto lane = open();
  for (const auto& [status, undefined] : std::vector<std::pair<int, bool>>{
           {0x10, false}, {0x16, false}, {0x1e, false}, {0x07, true}, {0x20, true}, {0x3b, true}}) {
    ASSERT_TRUE(lane->submit(memory_.orders(1, 100)));
    answer(device_.taken.back(), static_cast<Code>(status));
    const auto ended = poll(*lane);
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].failure->why.code, ErrorCode::io);
    EXPECT_EQ(ended[0].failure->undefined, undefined) << status;
  }
}

// Bit 6 is no part of any status: 0x41 is not 0x01.
TEST_F(LaneTest, AStatusThatOnlyLooksLikeSuccessIsNone) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(1, 100)));
  answer(device_.taken.back(), static_cast<Code>(0x41));
  const auto ended = poll(*lane);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_NE(ended[0].failure, nullptr);
}

// libfabric goes on for ever when its write() fails with EPERM.
TEST_F(LaneTest, LibfabricAPortalThatRefusesForGoodIsNoEndlessLoop) {
  const auto lane = open();
  device_.refusal = Error{ErrorCode::denied, "no more"};
  ASSERT_TRUE(lane->submit(memory_.orders(3, 100)));
  const auto ended = poll(*lane);
  ASSERT_EQ(tags(ended), (Tags{0, 1, 2})) << "at once, not after the limit";
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::denied);
  EXPECT_FALSE(ended[0].failure->undefined);
  EXPECT_EQ(device_.closes, 1U);
  EXPECT_LE(device_.offered.size(), 2U);
}

TEST_F(LaneTest, WhatIsUnderWayInAPortalThatRefusesMayStillEnd) {
  device_.batches = false;
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(1, 100)));
  device_.refusal = Error{ErrorCode::absent, "disabled"};
  ASSERT_TRUE(lane->submit({{memory_.order(100, 100, 1)}}));
  EXPECT_EQ(tags(poll(*lane)), (Tags{1}));
  EXPECT_EQ(device_.closes, 0U);
  copy(device_.taken.at(0));
  const auto ended = poll(*lane);
  ASSERT_EQ(tags(ended), (Tags{0}));
  EXPECT_EQ(ended[0].failure, nullptr);
}

TEST_F(LaneTest, ADescriptorRefusedForItsOwnSakeHoldsUpNobody) {
  device_.batches = false;
  device_.refused = Opcode::fill;
  const auto lane = open();
  auto orders = memory_.orders(4, 1024);
  orders[1].operation.opcode = Opcode::fill;
  ASSERT_TRUE(lane->submit(orders));
  std::vector<Ended> ended;
  for (int i = 0; i < 5; ++i) lane->poll(ended);
  ASSERT_EQ(tags(ended), (Tags{1}));
  EXPECT_EQ(ended[0].failure->why.code, ErrorCode::unsupported);
  EXPECT_EQ(device_.taken.size(), 3U);
}

// As a kernel that takes batches no more: their members are not to blame.
TEST_F(LaneTest, ABatchThatThePortalRefusesGoesOnAlone) {
  device_.refused = Opcode::batch;
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(4, 1024)));
  std::vector<Ended> ended;
  for (int i = 0; i < 5; ++i) lane->poll(ended);
  EXPECT_TRUE(ended.empty());
  ASSERT_EQ(device_.taken.size(), 4U);
  for (const Descriptor& each : device_.taken) copy(each);
  EXPECT_EQ(tags(poll(*lane)), (Tags{0, 1, 2, 3}));
  EXPECT_TRUE(memory_.equal());
}

TEST_F(LaneTest, GivingUpEndsAllThatIsUnderWay) {
  const auto lane = open();
  ASSERT_TRUE(lane->submit(memory_.orders(3, 100)));
  std::vector<Ended> ended;
  lane->give_up(ended);
  EXPECT_EQ(tags(ended), (Tags{0, 1, 2}));
  EXPECT_EQ(device_.closes, 1U);
  EXPECT_EQ(lane->under_way(), 0U);
}

// The child has a queue of its own; the parent's goes on.
TEST_F(LaneTest, AForkedChildOpensTheQueueAnew) {
  const auto lane = open();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool taken = lane->submit(memory_.orders(1, 100)).value_or(0) == 1;
    _exit(taken && device_.opens == 2 && device_.closes == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lane->submit(memory_.orders(1, 100)).value_or(0), 1U);
  EXPECT_EQ(device_.opens, 1U);
}

// Answers to what the device has, in any order, of any kind; a batch's own when its members are
// through.
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

TEST_F(LaneTest, WhateverHappensEachJobEndsOnce) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    HeldDevice device{.batches = seed % 2 == 0};
    Whims whims(device, seed);
    Random random(seed + 1000);
    const auto lane = Lane::open(held_queue("wq0.0", 8),
                                 {.open = device.opener(), .limit = kLimit, .clock = &clock_})
                          .value();
    constexpr std::uint64_t kJobs = 64;
    std::vector<Ended> ended;
    std::uint64_t submitted = 0;
    for (int round = 0; round < 5000 && ended.size() < kJobs; ++round) {
      if (submitted < kJobs) {
        const std::uint64_t many = std::min(random.below(5), kJobs - submitted);
        std::vector<Order> orders;
        for (std::uint64_t i = 0; i < many; ++i) {
          orders.push_back(memory_.order((submitted + i) * 64, 64, submitted + i));
        }
        submitted += lane->submit(orders).value_or(0);
      }
      whims.next(clock_);
      lane->poll(ended);
      whims.forget_closed();
    }
    ASSERT_EQ(ended.size(), kJobs) << seed;
    std::map<std::uint64_t, int> times;
    for (const Ended& each : ended) {
      EXPECT_EQ(++times[each.tag], 1) << seed;
    }
    EXPECT_EQ(lane->under_way(), 0U);
  }
}

}  // namespace
}  // namespace headrace::dsa
