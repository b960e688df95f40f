// SPDX-License-Identifier: Apache-2.0
// Tests groups of copies, and the looks of a waiting thread.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

std::atomic<bool> marks;  // events are recorded
std::atomic<int> events;  // made and not destroyed

void script_looks(Driver& scripted) {
  Callbacks::script(scripted, true);
  marks = true;
  events = 0;
  scripted.cuEventRecord = [](CUevent event, CUstream stream) {
    return marks ? real.cuEventRecord(event, stream) : CUDA_ERROR_OUT_OF_MEMORY;
  };
  scripted.cuEventCreate = [](CUevent* event, unsigned flags) {
    ++events;
    return real.cuEventCreate(event, flags);
  };
  scripted.cuEventDestroy_v2 = [](CUevent event) {
    --events;
    return real.cuEventDestroy_v2(event);
  };
}

class FlightsLook : public LaneFixture {
 protected:
  // Looks for at most `most`; returns the number of pieces that the first successful look finds.
  std::size_t look_for(std::chrono::milliseconds most) {
    const Nanoseconds end = system_clock().now() + most;
    while (system_clock().now() < end) {
      if (const auto looked = lane_->look(std::chrono::microseconds{50}); looked.found > 0) {
        return looked.found;
      }
    }
    return 0;
  }
  // The lane's own look comes after 100 ms.
  std::size_t look_before_the_lane() { return look_for(std::chrono::milliseconds{90}); }
  std::size_t look_in_vain() { return look_for(std::chrono::milliseconds{20}); }
};

TEST_F(FlightsLook, FindsADirectPieceBeforeItsCallback) {
  open("", {}, script_looks);
  accept(pieces(1));
  EXPECT_EQ(look_before_the_lane(), 1U);
  EXPECT_EQ(outcomes_.well(), std::vector<std::uint64_t>{0});
  EXPECT_TRUE(arrived(piece().to, piece().from));
  EXPECT_EQ(lane_->look(std::chrono::microseconds{50}).found, 0U) << "once";
  // The callback is late, not held up: the next one is requested as usual.
  accept(pieces(1));
  EXPECT_EQ(Callbacks::asked, 2);
  Callbacks::call();
  expect_well();
}

// The lane's thread must empty the slot.
TEST_F(FlightsLook, LeavesPlainMemoryToTheLane) {
  open("", {}, script_looks);
  std::vector<std::byte> bytes(1 << 16, std::byte{1});
  const MemoryRange plain(bytes, test::kDram);
  Piece back = piece();
  back.from = back.to;
  back.to = whole(plain);
  accept({&back, 1});
  ASSERT_TRUE(eventually([] { return Callbacks::asked > 0; })) << "by the lane's thread";
  EXPECT_EQ(look_in_vain(), 0U);
  Callbacks::call();
  expect_well();
}

// An event that was recorded elsewhere says nothing about these copies.
TEST_F(FlightsLook, FindsNothingByAnEventThatWasNotRecorded) {
  open("latency=5ms", {}, script_looks);
  Callbacks::held = false;
  accept(pieces(1));
  expect_well();  // the event has been recorded once
  marks = false;
  const Nanoseconds begun = system_clock().now();
  accept(pieces(1));
  while (outcomes_.count() < 2 && system_clock().now() < begun + kBound) look_in_vain();
  EXPECT_GE(system_clock().now() - begun, std::chrono::milliseconds{5});
  expect_well();
}

TEST_F(FlightsLook, StopsWhereCallbacksDoNotCome) {
  open("", {.max_pieces = 2}, script_looks);
  for (int i = 0; i < 2; ++i) {
    accept(pieces(1));
    EXPECT_EQ(look_before_the_lane(), 1U);
  }
  accept(pieces(1));
  EXPECT_EQ(look_in_vain(), 0U) << "the lane's looks see to it";
  Callbacks::call();
  expect_well();
}

// Counts its readings, and can call the callbacks that are due.
class CallingClock final : public Clock {
 public:
  Nanoseconds now() const override {
    ++readings;
    if (calls && Callbacks::owed > 0) Callbacks::call();
    return system_clock().now();
  }
  mutable std::atomic<int> readings = 0;
  std::atomic<bool> calls = false;
};

TEST_F(FlightsLook, TheLanesEndAwaitsTheCallback) {
  CallingClock clock;
  open("", {.clock = &clock}, script_looks);
  accept(pieces(1));
  ASSERT_EQ(look_before_the_lane(), 1U);
  EXPECT_EQ(events, 1);
  clock.calls = true;  // read by the lane's thread while it ends
  lane_.reset();
  EXPECT_EQ(Callbacks::owed, 0U);
  EXPECT_EQ(events, 0) << "the group was kept";
}

TEST_F(FlightsLook, ACallbackAfterTheLanesEndReadsNoClock) {
  CallingClock clock;
  open("", {.clock = &clock}, script_looks);
  accept(pieces(1));
  expect_well();  // the lane's own look has ended it
  lane_.reset();
  const int before = clock.readings;
  ASSERT_EQ(Callbacks::owed, 1U);
  Callbacks::call();
  EXPECT_EQ(clock.readings, before);
}

// Holds up the thread that reports to it.
class Blocks final : public Completion {
 public:
  void complete(std::uint64_t, Status) noexcept override {
    entered = true;
    static_cast<void>(eventually([this] { return released.load(); }));
    left = true;
  }
  std::atomic<bool> entered = false;
  std::atomic<bool> released = false;
  std::atomic<bool> left = false;
};

// Only the lane's thread frees groups that a look has ended.
TEST_F(FlightsLook, StopsWhereTheLanesThreadIsHeldUp) {
  Blocks blocks;
  open("", {.max_pieces = 2, .slots = 1}, script_looks);
  Callbacks::held = false;
  std::vector<std::byte> bytes(1 << 16, std::byte{1});
  const MemoryRange plain(bytes, test::kDram);
  Piece staged = piece();
  staged.from = whole(plain);
  ASSERT_EQ(lane_->accept({&staged, 1}, blocks).value_or(0), 1U);
  ASSERT_TRUE(eventually([&] { return blocks.entered.load(); }));
  Callbacks::held = true;
  std::size_t found = 0;
  for (int i = 0; i < 9; ++i) {
    const auto taken = lane_->accept(pieces(1), outcomes_);
    ASSERT_TRUE(taken) << taken.error().message;
    sent_ += *taken;
    found += look_in_vain();
    Callbacks::call();
  }
  EXPECT_LE(found, 2U);
  blocks.released = true;
  EXPECT_TRUE(eventually([&] { return blocks.left.load(); }));
  EXPECT_TRUE(outcomes_.wait(sent_));
}

// While one group is reported, the link has the next one.
TEST_F(FlightsLook, LongCopiesEndInGroupsOf4MiB) {
  open("", {}, script_looks);
  Callbacks::held = false;
  accept(pieces(64));
  EXPECT_EQ(Callbacks::asked, 1);
  expect_well();
  auto twice = pieces(64);
  const auto once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  accept(twice);
  EXPECT_EQ(Callbacks::asked, 3);
  expect_well();
}

}  // namespace
}  // namespace headrace::cuda
