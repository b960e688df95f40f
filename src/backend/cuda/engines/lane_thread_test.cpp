// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

using LaneThread = LaneFixture;

Driver honest;
std::atomic<CUresult> answer;  // of streams to queries; CUDA_SUCCESS: the real one
std::atomic<int> questions;
thread_local CUstreamCaptureMode mode_here = CU_STREAM_CAPTURE_MODE_GLOBAL;
std::atomic<int> good_answers;
std::atomic<bool> may_return;

CUresult answer_or_ask(CUstream stream) {
  const CUresult result = answer;
  EXPECT_EQ(mode_here, CU_STREAM_CAPTURE_MODE_RELAXED) << "else it breaks others' graphs";
  ++questions;
  return result == CUDA_SUCCESS ? honest.cuStreamQuery(stream) : result;
}

// Delays the first good answer.
CUresult answer_late(CUstream stream) {
  const CUresult result = honest.cuStreamQuery(stream);
  if (result != CUDA_SUCCESS || ++good_answers > 1) return result;
  const Nanoseconds end = system_clock().now() + kBound;
  while (!may_return && system_clock().now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return result;
}

CUresult refuse_callback(CUstream, CUhostFn, void*) { return CUDA_ERROR_OUT_OF_MEMORY; }

void script_answers_without_callbacks(Driver& scripted) {
  honest = scripted;
  scripted.cuStreamQuery = answer_or_ask;
  scripted.cuLaunchHostFunc = refuse_callback;
  scripted.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    std::swap(*mode, mode_here);
    return CUDA_SUCCESS;
  };
}

void script_late_answer_without_callbacks(Driver& scripted) {
  script_answers_without_callbacks(scripted);
  scripted.cuStreamQuery = answer_late;
}

std::atomic<bool> held_up;
Mutex held_mutex;
std::vector<std::pair<CUhostFn, void*>> held GUARDED_BY(held_mutex);

CUresult hold_callback(CUstream stream, CUhostFn then, void* data) {
  if (!held_up) return honest.cuLaunchHostFunc(stream, then, data);
  const MutexLock lock(held_mutex);
  held.emplace_back(then, data);
  return CUDA_SUCCESS;
}

std::size_t call_back() {
  std::vector<std::pair<CUhostFn, void*>> late;
  {
    const MutexLock lock(held_mutex);
    late.swap(held);
  }
  for (const auto& [then, data] : late) then(data);
  return late.size();
}

void script_held_callbacks(Driver& scripted) {
  honest = scripted;
  scripted.cuLaunchHostFunc = hold_callback;
}

std::atomic<CUstream> hung_stream;

CUresult copy_and_note(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  CUstream none = nullptr;
  hung_stream.compare_exchange_strong(none, stream);
  return honest.cuMemcpyAsync(to, from, bytes, stream);
}

CUresult answer_of_hung(CUstream stream) {
  return held_up && stream == hung_stream ? CUDA_ERROR_NOT_READY : honest.cuStreamQuery(stream);
}

// Holds up only the first callback.
CUresult hold_first_callback(CUstream stream, CUhostFn then, void* data) {
  {
    const MutexLock lock(held_mutex);
    if (held.empty()) {
      held.emplace_back(then, data);
      return CUDA_SUCCESS;
    }
  }
  return honest.cuLaunchHostFunc(stream, then, data);
}

void script_one_hung_stream(Driver& scripted) {
  honest = scripted;
  scripted.cuMemcpyAsync = copy_and_note;
  scripted.cuStreamQuery = answer_of_hung;
  scripted.cuLaunchHostFunc = hold_first_callback;
}

std::atomic<int> copies_made;

CUresult copy_and_count(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  ++copies_made;
  return honest.cuMemcpyAsync(to, from, bytes, stream);
}

void script_counted_copies(Driver& scripted) {
  honest = scripted;
  scripted.cuMemcpyAsync = copy_and_count;
}

// Gives the lane the next piece for each piece that has ended, like a mover.
class Refills final : public Completion {
 public:
  Refills(Lane& lane, std::span<const Piece> next, Outcomes& outcomes)
      : lane_(lane), next_(next), outcomes_(outcomes) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    if (const std::size_t i = begun_.fetch_add(1); i < next_.size()) {
      EXPECT_EQ(lane_.accept(next_.subspan(i, 1), *this).value_or(0), 1U);
    }
    outcomes_.complete(tag, std::move(outcome));
  }

 private:
  Lane& lane_;
  const std::span<const Piece> next_;
  Outcomes& outcomes_;
  std::atomic<std::size_t> begun_{0};
};

// Otherwise all copies except the first would have one piece each: they end together, but are
// replaced one by one.
TEST_F(LaneThread, WhatRefillsTheLaneIsCoalescedToo) {
  copies_made = 0;
  open("latency=1ms", {}, script_counted_copies);
  const auto all = pieces(16);
  Refills refills(*lane_, std::span(all).subspan(8), outcomes_);
  ASSERT_EQ(lane_->accept(std::span(all).first(8), refills).value_or(0), 8U);
  ASSERT_TRUE(outcomes_.await(16));
  EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
  EXPECT_EQ(copies_made, 2);
}

// This holds through pinned memory too: they share a slot.
TEST_F(LaneThread, SmallNeighboursOfPlainMemoryAreOneCopy) {
  open("", {}, script_counted_copies);
  constexpr std::size_t kPieces = 100;
  constexpr std::uint64_t kBytes = 4100;
  std::vector<std::byte> bytes(kPieces * kBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> back(bytes.size());
  const MemoryRange source(bytes, test::kDram);
  const MemoryRange target(back, test::kDram);
  for (const bool to_gpu : {true, false}) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < kPieces; ++i) {
      const Extent on_gpu = whole(*memory_).part(i * kBytes, Bytes{kBytes});
      const Extent plain = whole(to_gpu ? source : target).part(i * kBytes, Bytes{kBytes});
      pieces.push_back({.from = to_gpu ? plain : on_gpu,
                        .to = to_gpu ? on_gpu : plain,
                        .engine = test::kGpuEngine,
                        .tag = i});
    }
    copies_made = 0;
    ASSERT_EQ(lane_->accept(pieces, outcomes_).value_or(0), kPieces);
    ASSERT_TRUE(outcomes_.await(to_gpu ? kPieces : 2 * kPieces));
    EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
    EXPECT_EQ(copies_made, 1) << to_gpu;
  }
  EXPECT_EQ(back, bytes);
}

TEST_F(LaneThread, ALostGpuEndsAllItHadAndTakesNoMore) {
  open("lost_after=40,latency=100us");
  std::size_t accepted = 0;
  std::optional<Error> refused;
  const auto all = pieces(64);
  const Nanoseconds end = system_clock().now() + kBound;
  while (!refused && system_clock().now() < end) {
    const auto taken = lane_->accept(std::span(all).first(8), outcomes_);
    if (taken) {
      accepted += *taken;
    } else {
      refused = taken.error();
    }
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::io);
  EXPECT_NE(refused->message.find("is lost"), std::string::npos) << refused->message;
  ASSERT_TRUE(outcomes_.await(static_cast<std::uint32_t>(accepted)));
  EXPECT_EQ(outcomes_.well().size() + outcomes_.failed().size(), accepted);
  EXPECT_FALSE(outcomes_.failed().empty());
}

// The copy continues, whatever the result of a query.
TEST_F(LaneThread, AnErrorThatEndsNoContextEndsNoPiece) {
  answer = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  questions = 0;
  open("", {}, script_answers_without_callbacks);
  std::ranges::fill(pinned_->bytes(), std::byte{7});
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  const Nanoseconds end = system_clock().now() + kBound;
  while (questions == 0 && system_clock().now() < end) std::this_thread::yield();
  answer = CUDA_SUCCESS;
  ASSERT_TRUE(outcomes_.await(1));
  EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
  EXPECT_EQ(test::read_gpu(*memory_, 0, 1 << 16), std::vector<std::byte>(1 << 16, std::byte{7}));
}

TEST_F(LaneThread, AnAnswerIsForWhatWasThereWhenItWasAsked) {
  answer = CUDA_SUCCESS;
  good_answers = 0;
  may_return = false;
  open("latency=50ms", {}, script_late_answer_without_callbacks);
  test::write_gpu(*memory_, 0, std::vector<std::byte>(1 << 17, std::byte{7}));
  auto back = pieces(2);
  for (Piece& piece : back) std::swap(piece.from, piece.to);
  ASSERT_EQ(lane_->accept(std::span(back).first(1), outcomes_).value_or(0), 1U);
  const Nanoseconds end = system_clock().now() + kBound;
  while (good_answers == 0 && system_clock().now() < end) std::this_thread::yield();
  ASSERT_EQ(lane_->accept(std::span(back).last(1), outcomes_).value_or(0), 1U);
  may_return = true;
  ASSERT_TRUE(outcomes_.await(2));
  const auto there = pinned_->bytes().first(1 << 17);
  EXPECT_EQ(std::ranges::count(there, std::byte{7}), 1 << 17);
}

TEST_F(LaneThread, AGpuThatHangsAndThenIsLostStaysLost) {
  answer = CUDA_ERROR_NOT_READY;
  open("", {.limit = std::chrono::milliseconds{500}}, script_answers_without_callbacks);
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  const auto refusal = [&]() -> std::optional<Error> {
    const auto taken = lane_->accept({}, outcomes_);
    return taken ? std::nullopt : std::optional(taken.error());
  };
  const Nanoseconds end = system_clock().now() + kBound;
  while (!refusal() && system_clock().now() < end) std::this_thread::yield();
  answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  ASSERT_TRUE(outcomes_.await(1));
  EXPECT_EQ(outcomes_.failed().size(), 1U);
  // An idle lane looks again only after a second.
  const Nanoseconds looked = system_clock().now() + std::chrono::milliseconds{1200};
  while (refusal() && system_clock().now() < looked) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  const auto refused = refusal();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::io);
}

std::atomic<CUdeviceptr> copied_from;
CUresult copy_and_note_source(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                              CUstream stream) {
  copied_from = from;
  return honest.cuMemcpyAsync(to, from, bytes, stream);
}

TEST_F(LaneThread, TriesAgainToHaveSlots) {
  open("", {}, [](Driver& scripted) {
    honest = scripted;
    scripted.cuMemcpyAsync = copy_and_note_source;
  });
  auto plain = allocate(gpu_->machine, 64_KiB, Placement::on(test::kDram)).value();
  const auto at = reinterpret_cast<std::uintptr_t>(plain->memory());
  Piece piece = pieces(1).front();
  piece.from = whole(*plain);
  {
    const ScopedVariable none("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
    ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
    ASSERT_TRUE(outcomes_.await(1));
    EXPECT_EQ(copied_from, at) << "there are none";
  }
  const Nanoseconds end = system_clock().now() + kBound;
  for (std::uint32_t sent = 2; copied_from == at && system_clock().now() < end; ++sent) {
    ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
    ASSERT_TRUE(outcomes_.await(sent));
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  EXPECT_NE(copied_from, at);
}

// Like a host function of other code in the process that blocks: the streams still answer.
TEST_F(LaneThread, CallbacksThatAreHeldUpHoldNothingUp) {
  held_up = true;
  open("", {.max_pieces = 4, .slots = 1, .limit = std::chrono::milliseconds{500}},
       script_held_callbacks);
  const auto all = pieces(32);
  std::uint32_t sent = 0;
  // Each by itself; more pieces than there are groups.
  const auto send_all = [&] {
    for (const Piece& piece : all) {
      const auto taken = lane_->accept({&piece, 1}, outcomes_);
      ASSERT_TRUE(taken) << taken.error().message;
      sent += static_cast<std::uint32_t>(*taken);
      ASSERT_TRUE(outcomes_.await(sent));
    }
  };
  send_all();
  EXPECT_EQ(call_back(), 1U) << "none are asked for meanwhile";
  held_up = false;
  send_all();
  EXPECT_EQ(outcomes_.well().size(), 64U);
  EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
}

Outcomes* heard = nullptr;
std::atomic<std::uint32_t> launched;  // pieces up to now, each by itself
std::atomic<bool> refusing;
std::atomic<int> callbacks_asked;

// Returns when a look at the streams has ended the group of this callback.
CUresult refuse_callback_late(CUstream stream, CUhostFn then, void* data) {
  ++callbacks_asked;
  if (!refusing) return honest.cuLaunchHostFunc(stream, then, data);
  EXPECT_TRUE(heard->await(launched)) << "no look ended it";
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// A look may come between the launch of copies and the request for their callback. Then no callback
// is owed, and later copies request theirs again.
TEST_F(LaneThread, ALookBeforeTheCallbackIsRefusedOwesNone) {
  heard = &outcomes_;
  launched = 0;
  callbacks_asked = 0;
  open("", {.max_pieces = 1, .slots = 1}, [](Driver& scripted) {
    honest = scripted;
    scripted.cuLaunchHostFunc = refuse_callback_late;
  });
  const auto send = [&](const Piece& piece) {
    ++launched;
    ASSERT_EQ(lane_->accept({&piece, 1}, outcomes_).value_or(0), 1U);
    ASSERT_TRUE(outcomes_.await(launched));
  };
  refusing = true;
  send(pieces(1).front());
  refusing = false;
  // Four groups, none of which is lost. A look may end others too; then the next group has no
  // callback.
  const auto again = pieces(1).front();
  const Nanoseconds end = system_clock().now() + kBound;
  while (callbacks_asked < 9 && system_clock().now() < end) send(again);
  EXPECT_GE(callbacks_asked, 9);
  EXPECT_EQ(outcomes_.well().size(), launched);
}

TEST_F(LaneThread, OneDirectionThatHangsIsNoticedWhileAnotherWorks) {
  held_up = true;
  hung_stream = nullptr;
  open("", {.limit = std::chrono::milliseconds{500}}, script_one_hung_stream);
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  Piece back = pieces(2).back();
  std::swap(back.from, back.to);
  std::optional<Error> refused;
  const Nanoseconds end = system_clock().now() + std::chrono::seconds{20};
  std::uint32_t ended = 0;
  while (system_clock().now() < end) {
    const auto taken = lane_->accept({&back, 1}, outcomes_);
    if (!taken) {
      refused = taken.error();
      break;
    }
    ended += static_cast<std::uint32_t>(*taken);
    ASSERT_TRUE(outcomes_.await(ended));
  }
  held_up = false;
  ASSERT_TRUE(outcomes_.await(ended + 1)) << "it answers again";
  call_back();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::timed_out);
}

std::atomic<bool> busy_with_kernels;

CUresult answer_of_busy(CUstream stream) {
  return busy_with_kernels ? CUDA_ERROR_NOT_READY : honest.cuStreamQuery(stream);
}

// Like other programs' kernels that occupy all multiprocessors. The copy comes when they end, and
// until then the caller does not get its memory back. This takes much longer than the limit of a
// copy engine.
void expect_waits_for_multiprocessors(Lane& lane, std::span<const Piece> all, Outcomes& outcomes) {
  EXPECT_EQ(lane.accept(all, outcomes).value_or(0), all.size());
  std::optional<Error> refused;
  const Nanoseconds end = system_clock().now() + kBound;
  while (!refused && system_clock().now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    const auto taken = lane.accept({}, outcomes);
    if (!taken) refused = taken.error();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{1000});
  EXPECT_EQ(outcomes.well().size() + outcomes.failed().size(), 0U);
  busy_with_kernels = held_up = false;  // otherwise the lane's end would wait forever
  EXPECT_TRUE(outcomes.await(static_cast<std::uint32_t>(all.size())));
  EXPECT_TRUE(outcomes.failed().empty()) << outcomes.last().message;
  call_back();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::timed_out);
}

void script_busy_gpu(Driver& scripted) {
  script_held_callbacks(scripted);
  scripted.cuStreamQuery = answer_of_busy;
}

TEST_F(LaneThread, CopiesOfAKernelWaitForMultiprocessors) {
  busy_with_kernels = held_up = true;
  open(
      "",
      {.gather = GatherLimit{.bytes = 64_KiB, .count = 2}, .limit = std::chrono::milliseconds{100}},
      script_busy_gpu);
  auto all = pieces(3);
  std::swap(all[0].from, all[1].from);  // neighbours would be one copy
  expect_waits_for_multiprocessors(*lane_, all, outcomes_);
}

TEST_F(LaneThread, CopiesInsideAGpuWaitForMultiprocessors) {
  busy_with_kernels = held_up = true;
  open("", {.limit = std::chrono::milliseconds{100}}, script_busy_gpu);
  Piece inside = pieces(1).front();
  inside.from = whole(*memory_).part(1 << 20, 64_KiB);
  expect_waits_for_multiprocessors(*lane_, {&inside, 1}, outcomes_);
}

TEST_F(LaneThread, MultiprocessorsAreNotWaitedForForEver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_the_end = [&] {
    busy_with_kernels = held_up = true;
    open("", {.limit = std::chrono::milliseconds{10}}, script_busy_gpu);
    Piece inside = pieces(1).front();
    inside.from = whole(*memory_).part(1 << 20, 64_KiB);
    if (lane_->accept({&inside, 1}, outcomes_)) std::this_thread::sleep_for(kBound);
  };
  EXPECT_DEATH(wait_for_the_end(), "a GPU hangs with memory of this process");
}

// A silent GPU may still write its pieces, so the process does not go on with that memory.
TEST_F(LaneThread, ASilentGpuIsGivenNoMoreAndThenTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_the_end = [&] {
    open("stall_after=20", {.limit = std::chrono::milliseconds{200}});
    std::optional<Error> refused;
    while (!refused) {
      const auto taken = lane_->accept(pieces(8), outcomes_);
      if (!taken) refused = taken.error();
    }
    if (refused->code == ErrorCode::timed_out) std::this_thread::sleep_for(kBound);
  };
  EXPECT_DEATH(wait_for_the_end(), "a GPU hangs with memory of this process");
}

}  // namespace
}  // namespace headrace::cuda
