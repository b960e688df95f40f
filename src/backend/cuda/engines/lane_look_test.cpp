// SPDX-License-Identifier: Apache-2.0
// Tests the looks of a waiting thread, and pieces that are lists.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

using LaneLook = LaneFixture;

Driver with;
std::atomic<int> callbacks;  // asked for
std::atomic<bool> holds;
std::atomic<bool> marks;
std::atomic<std::uint64_t> refused_from;  // copies of this address
Mutex late_mutex;
std::vector<std::pair<CUhostFn, void*>> owing GUARDED_BY(late_mutex);

std::atomic<std::size_t> owed;

// Replaces the callback, and notes that it is due.
void note_owing(void* data) {
  const std::unique_ptr<std::pair<CUhostFn, void*>> one(
      static_cast<std::pair<CUhostFn, void*>*>(data));
  const MutexLock lock(late_mutex);
  owing.push_back(*one);
}

CUresult ask_or_hold(CUstream stream, CUhostFn then, void* data) {
  ++callbacks;
  if (!holds) return with.cuLaunchHostFunc(stream, then, data);
  ++owed;
  return with.cuLaunchHostFunc(stream, note_owing, new std::pair(then, data));
}

CUresult mark_or_not(CUevent event, CUstream stream) {
  return marks ? with.cuEventRecord(event, stream) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult copy_or_refuse(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (from == refused_from) return CUDA_ERROR_OUT_OF_MEMORY;
  return with.cuMemcpyAsync(to, from, bytes, stream);
}

CUresult refuse_batch(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                      std::size_t*, std::size_t, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult refuse_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void**, void**) {
  return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

void script_late_callbacks(Driver& scripted) {
  with = scripted;
  callbacks = 0;
  owed = 0;
  holds = marks = true;
  scripted.cuLaunchHostFunc = ask_or_hold;
  scripted.cuEventRecord = mark_or_not;
}

void refusing_one(Driver& scripted) {
  script_late_callbacks(scripted);
  holds = false;
  scripted.cuMemcpyAsync = copy_or_refuse;
  scripted.cuMemcpyBatchAsync_v2 = refuse_batch;
  scripted.cuLaunchKernel = refuse_launch;
}

std::atomic<bool> lost;

// Then the context is lost.
void refusing_one_and_lost(Driver& scripted) {
  refusing_one(scripted);
  holds = true;
  lost = false;
  scripted.cuStreamQuery = [](CUstream stream) {
    return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : with.cuStreamQuery(stream);
  };
}

void call_all() {
  const Nanoseconds end = system_clock().now() + kBound;
  while (owed > 0 && system_clock().now() < end) {
    std::vector<std::pair<CUhostFn, void*>> all;
    {
      const MutexLock lock(late_mutex);
      all.swap(owing);
    }
    owed -= all.size();
    for (const auto& [then, data] : all) then(data);
  }
  EXPECT_EQ(owed, 0U);
}

// Looks for at most `most`; returns the number of pieces that the first successful look finds.
std::size_t look_for(Lane& lane, std::chrono::milliseconds most) {
  const Nanoseconds end = system_clock().now() + most;
  while (system_clock().now() < end) {
    if (const auto looked = lane.look(std::chrono::microseconds{50}); looked.found > 0) {
      return looked.found;
    }
  }
  return 0;
}

TEST_F(LaneLook, FindsADirectPieceBeforeItsCallback) {
  open("", {}, script_late_callbacks);
  std::ranges::fill(pinned_->bytes(), std::byte{7});
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  EXPECT_EQ(look_for(*lane_, std::chrono::milliseconds{90}), 1U);
  EXPECT_EQ(outcomes_.well(), std::vector<std::uint64_t>{0});
  EXPECT_EQ(test::read_gpu(*memory_, 0, 1 << 16), std::vector<std::byte>(1 << 16, std::byte{7}));
  EXPECT_EQ(lane_->look(std::chrono::microseconds{50}).found, 0U) << "once";
  // The callback is late, not held up: the next one is requested as usual.
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  EXPECT_EQ(callbacks, 2);
  call_all();
  ASSERT_TRUE(outcomes_.await(2));
  EXPECT_EQ(outcomes_.well().size(), 2U);
}

// The lane's thread must empty the slot.
TEST_F(LaneLook, LeavesPlainMemoryToTheLane) {
  open("", {}, script_late_callbacks);
  std::vector<std::byte> bytes(1 << 16, std::byte{1});
  const MemoryRange plain(bytes, test::kDram);
  Piece piece = pieces(1).front();
  piece.from = whole(*memory_).part(0, 64_KiB);
  piece.to = whole(plain);
  ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
  const Nanoseconds end = system_clock().now() + kBound;
  while (callbacks == 0 && system_clock().now() < end) {  // the lane's thread requests it
  }
  EXPECT_EQ(look_for(*lane_, std::chrono::milliseconds{20}), 0U);
  call_all();
  ASSERT_TRUE(outcomes_.await(1));
}

// An event that was recorded elsewhere says nothing about these copies.
TEST_F(LaneLook, FindsNothingByAnEventThatWasNotRecorded) {
  open("latency=5ms", {}, script_late_callbacks);
  holds = false;
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  ASSERT_TRUE(outcomes_.await(1));  // the event has been recorded once
  marks = false;
  const Nanoseconds begun = system_clock().now();
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  while (outcomes_.well().size() < 2 && system_clock().now() < begun + kBound) {
    if (lane_->look(std::chrono::microseconds{50}).found > 0) break;
  }
  EXPECT_GE(system_clock().now() - begun, std::chrono::milliseconds{5});
  ASSERT_TRUE(outcomes_.await(2));
}

TEST_F(LaneLook, StopsWhereCallbacksDoNotCome) {
  open("", {.max_pieces = 2}, script_late_callbacks);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
    EXPECT_EQ(look_for(*lane_, std::chrono::milliseconds{90}), 1U);
  }
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  EXPECT_EQ(look_for(*lane_, std::chrono::milliseconds{20}), 0U) << "the lane's looks see to it";
  call_all();
  ASSERT_TRUE(outcomes_.await(3));
}

// Counts its readings, and can call the callbacks that are due.
class CallingClock final : public Clock {
 public:
  Nanoseconds now() const override {
    ++readings;
    if (calls && owed > 0) call_all();
    return system_clock().now();
  }
  mutable std::atomic<int> readings = 0;
  std::atomic<bool> calls = false;
};

std::atomic<int> events;  // made and not destroyed

void script_counted_events(Driver& scripted) {
  script_late_callbacks(scripted);
  events = 0;
  scripted.cuEventCreate = [](CUevent* event, unsigned flags) {
    ++events;
    return with.cuEventCreate(event, flags);
  };
  scripted.cuEventDestroy_v2 = [](CUevent event) {
    --events;
    return with.cuEventDestroy_v2(event);
  };
}

TEST_F(LaneLook, TheLanesEndAwaitsTheCallback) {
  CallingClock clock;
  open("", {.clock = &clock}, script_counted_events);
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  ASSERT_EQ(look_for(*lane_, std::chrono::milliseconds{90}), 1U);
  EXPECT_EQ(events, 1);
  clock.calls = true;  // read by the lane's thread while it ends
  lane_.reset();
  EXPECT_EQ(owed, 0U);
  EXPECT_EQ(events, 0) << "the group was kept";
}

TEST_F(LaneLook, ACallbackAfterTheLanesEndReadsNoClock) {
  CallingClock clock;
  open("", {.clock = &clock}, script_counted_events);
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  ASSERT_TRUE(outcomes_.await(1));  // the lane's own look has ended it
  lane_.reset();
  const int before = clock.readings;
  ASSERT_EQ(owed, 1U);
  call_all();
  EXPECT_EQ(clock.readings, before);
}

// Holds up the thread that reports to it.
class Blocks final : public Completion {
 public:
  void complete(std::uint64_t, Status) noexcept override {
    entered_ = true;
    for (const Nanoseconds end = system_clock().now() + kBound;
         !released_ && system_clock().now() < end;) {
      std::this_thread::yield();
    }
    left_ = true;
  }
  bool entered() const { return await(entered_); }
  bool release() {
    released_ = true;
    return await(left_);
  }

 private:
  static bool await(const std::atomic<bool>& flag) {
    const Nanoseconds end = system_clock().now() + kBound;
    while (!flag && system_clock().now() < end) std::this_thread::yield();
    return flag;
  }
  std::atomic<bool> entered_ = false;
  std::atomic<bool> released_ = false;
  std::atomic<bool> left_ = false;
};

// Only the lane's thread frees groups that a look has ended.
TEST_F(LaneLook, StopsWhereTheLanesThreadIsHeldUp) {
  Blocks blocks;
  open("", {.max_pieces = 2, .slots = 1}, script_late_callbacks);
  holds = false;
  std::vector<std::byte> bytes(1 << 16, std::byte{1});
  const MemoryRange plain(bytes, test::kDram);
  Piece staged = pieces(1).front();
  staged.from = whole(plain);
  ASSERT_EQ(lane_->accept({&staged, 1}, blocks).value_or(0), 1U);
  ASSERT_TRUE(blocks.entered());
  holds = true;
  std::uint32_t sent = 0;
  std::size_t found = 0;
  for (int i = 0; i < 9; ++i) {
    const auto taken = lane_->accept(pieces(1), outcomes_);
    ASSERT_TRUE(taken) << taken.error().message;
    sent += static_cast<std::uint32_t>(*taken);
    found += look_for(*lane_, std::chrono::milliseconds{20});
    call_all();
  }
  EXPECT_LE(found, 2U);
  EXPECT_TRUE(blocks.release());
  EXPECT_TRUE(outcomes_.await(sent));
}

// While one group is reported, the link has the next one.
TEST_F(LaneLook, LongCopiesEndInGroupsOf4MiB) {
  open("", {}, script_late_callbacks);
  holds = false;
  ASSERT_EQ(lane_->accept(pieces(64), outcomes_).value_or(0), 64U);
  EXPECT_EQ(callbacks, 1);
  ASSERT_TRUE(outcomes_.await(64));
  auto twice = pieces(64);
  const auto once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  ASSERT_EQ(lane_->accept(twice, outcomes_).value_or(0), 128U);
  EXPECT_EQ(callbacks, 3);
  ASSERT_TRUE(outcomes_.await(192));
}

class LaneLists : public LaneFixture {
 protected:
  // Copies every second block of pinned memory to neighbours on the GPU.
  std::vector<MovePair> parts(std::size_t count, std::uint64_t bytes) const {
    std::vector<MovePair> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back({.to = whole(*memory_).part(i * bytes, Bytes{bytes}),
                      .from = whole(*pinned_).part(2 * i * bytes, Bytes{bytes})});
    }
    return made;
  }
  Piece piece_of(PieceList& list) const {
    return {.from = list.parts[0].from,
            .to = list.parts[0].to,
            .engine = test::kGpuEngine,
            .tag = 1,
            .list = &list};
  }
  bool arrived(const MovePair& part) const {
    const auto there = test::read_gpu(*memory_, part.to.offset, part.to.length.value);
    return std::ranges::equal(there,
                              pinned_->bytes().subspan(part.from.offset, part.from.length.value));
  }
  void fill() {
    for (std::size_t i = 0; i < pinned_->bytes().size(); ++i) {
      pinned_->memory()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    }
  }
};

TEST_F(LaneLists, AreWhatTheGpuReaches) {
  open("");
  auto pairs = parts(8, 4096);
  EXPECT_EQ(lane_->list(pairs, 1_MiB), 8U);
  EXPECT_EQ(lane_->list(pairs, 12_KiB), 3U);
  std::vector<std::byte> bytes(4096);
  const MemoryRange plain(bytes, test::kDram);
  pairs[5].from = whole(plain);
  EXPECT_EQ(lane_->list(pairs, 1_MiB), 5U);
  pairs[2].from.length = pairs[2].to.length = 0_B;
  EXPECT_EQ(lane_->list(pairs, 1_MiB), 2U);
}

TEST_F(LaneLists, EndAsOnePieceHoweverTheyAreCopied) {
  std::uint32_t sent = 0;
  for (const auto& [limit, bytes] : {std::pair{GatherLimit{128_KiB, 16}, 4096UL},
                                     {GatherLimit{128_KiB, 16}, 20000UL},
                                     {GatherLimit{128_KiB, 16}, 4100UL},
                                     {GatherLimit{}, 4096UL}}) {
    open("", {.gather = limit});
    fill();
    for (int turn = 0; turn < 3; ++turn) {
      const auto pairs = parts(100, bytes);
      PieceList list{.parts = pairs, .failed = std::vector<std::uint8_t>(100)};
      const Piece piece = piece_of(list);
      ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
      ASSERT_TRUE(outcomes_.await(++sent));
      EXPECT_TRUE(std::ranges::all_of(pairs, [&](const MovePair& p) { return arrived(p); }));
    }
    EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
    lane_.reset();
  }
}

TEST_F(LaneLists, MarkThePartsThatFailed) {
  open("", {}, refusing_one);
  fill();
  const auto pairs = parts(20, 4096);
  PieceList list{.parts = pairs, .failed = std::vector<std::uint8_t>(20)};
  refused_from = reinterpret_cast<std::uintptr_t>(pinned_->memory()) + pairs[7].from.offset;
  const Piece piece = piece_of(list);
  ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
  ASSERT_TRUE(outcomes_.await(1));
  EXPECT_EQ(outcomes_.failed(), std::vector<std::uint64_t>{1});
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(list.failed[i] != 0, i == 7) << i;
    EXPECT_EQ(arrived(pairs[i]), i != 7) << i;
  }
}

TEST_F(LaneLists, OfALostGpuHaveNoMarks) {
  open("latency=20ms", {}, refusing_one_and_lost);
  const auto pairs = parts(20, 4096);
  PieceList list{.parts = pairs, .failed = std::vector<std::uint8_t>(20)};
  refused_from = reinterpret_cast<std::uintptr_t>(pinned_->memory()) + pairs[7].from.offset;
  const Piece piece = piece_of(list);
  lost = true;
  ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
  ASSERT_TRUE(outcomes_.await(1));
  EXPECT_EQ(outcomes_.failed(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(outcomes_.last().code, ErrorCode::io);
  EXPECT_EQ(std::ranges::count(list.failed, 0), 20) << "all parts have failed";
  call_all();
}

TEST_F(LaneLists, MarksOfAnotherEngineAreCleared) {
  open("");
  const auto pairs = parts(20, 4096);
  PieceList list{.parts = pairs, .failed = std::vector<std::uint8_t>(20, 1)};
  const Piece piece = piece_of(list);
  ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
  ASSERT_TRUE(outcomes_.await(1));
  EXPECT_EQ(std::ranges::count(list.failed, 0), 20);
}

}  // namespace
}  // namespace headrace::cuda
