// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

using LaneThread = LaneFixture;
using std::chrono::milliseconds;

std::atomic<CUresult> answer;  // of streams to queries; CUDA_SUCCESS: the real one
std::atomic<int> questions;
thread_local CUstreamCaptureMode mode_here = CU_STREAM_CAPTURE_MODE_GLOBAL;

void script_answers_without_callbacks(Driver& scripted) {
  questions = 0;
  scripted.cuStreamQuery = [](CUstream stream) {
    const CUresult result = answer;
    EXPECT_EQ(mode_here, CU_STREAM_CAPTURE_MODE_RELAXED) << "else it breaks others' graphs";
    ++questions;
    return result == CUDA_SUCCESS ? real.cuStreamQuery(stream) : result;
  };
  scripted.cuLaunchHostFunc = [](CUstream, CUhostFn, void*) { return CUDA_ERROR_OUT_OF_MEMORY; };
  scripted.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    std::swap(*mode, mode_here);
    return CUDA_SUCCESS;
  };
}

std::atomic<int> copies_made;
std::atomic<CUdeviceptr> copied_from;

void script_noted_copies(Driver& scripted) {
  copies_made = 0;
  scripted.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                              CUstream stream) {
    ++copies_made;
    copied_from = from;
    return real.cuMemcpyAsync(to, from, bytes, stream);
  };
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
  open("latency=1ms", {}, script_noted_copies);
  const auto all = pieces(16);
  Refills refills(*lane_, std::span(all).subspan(8), outcomes_);
  ASSERT_EQ(lane_->accept(std::span(all).first(8), refills).value_or(0), 8U);
  sent_ = 16;
  expect_well();
  EXPECT_EQ(copies_made, 2);
}

// This holds through pinned memory too: they share a slot.
TEST_F(LaneThread, SmallNeighboursOfPlainMemoryAreOneCopy) {
  open("", {}, script_noted_copies);
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
    accept(pieces);
    expect_well();
    EXPECT_EQ(copies_made, 1) << to_gpu;
  }
  EXPECT_EQ(back, bytes);
}

TEST_F(LaneThread, ALostGpuEndsAllItHadAndTakesNoMore) {
  open("lost_after=40,latency=100us");
  std::optional<Error> refused;
  ASSERT_TRUE(eventually([&] {
    const auto taken = lane_->accept(pieces(8), outcomes_);
    sent_ += taken.value_or(0);
    if (!taken) refused = taken.error();
    return refused.has_value();
  }));
  EXPECT_EQ(refused->code, ErrorCode::io);
  EXPECT_NE(refused->message.find("is lost"), std::string::npos) << refused->message;
  ASSERT_TRUE(outcomes_.wait(sent_));
  EXPECT_EQ(outcomes_.count(), sent_);
  EXPECT_FALSE(outcomes_.failed().empty());
}

// The copy continues, whatever the result of a query.
TEST_F(LaneThread, AnErrorThatEndsNoContextEndsNoPiece) {
  answer = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  open("", {}, script_answers_without_callbacks);
  accept(pieces(1));
  ASSERT_TRUE(eventually([] { return questions > 0; }));
  answer = CUDA_SUCCESS;
  expect_well();
  EXPECT_TRUE(arrived(piece().to, piece().from));
}

std::atomic<int> good_answers;
std::atomic<bool> may_return;

// The first good answer is late: a second piece was accepted since the question.
TEST_F(LaneThread, AnAnswerIsForWhatWasThereWhenItWasAsked) {
  answer = CUDA_SUCCESS;
  good_answers = 0;
  may_return = false;
  open("latency=50ms", {}, [](Driver& scripted) {
    script_answers_without_callbacks(scripted);
    scripted.cuStreamQuery = [](CUstream stream) {
      const CUresult result = real.cuStreamQuery(stream);
      if (result == CUDA_SUCCESS && ++good_answers == 1) {
        static_cast<void>(eventually([] { return may_return.load(); }));
      }
      return result;
    };
  });
  test::write_gpu(*memory_, 0, std::vector<std::byte>(1 << 17, std::byte{7}));
  auto back = pieces(2);
  for (Piece& piece : back) std::swap(piece.from, piece.to);
  accept(std::span(back).first(1));
  ASSERT_TRUE(eventually([] { return good_answers > 0; }));
  accept(std::span(back).last(1));
  may_return = true;
  expect_well();
  EXPECT_EQ(std::ranges::count(pinned_->bytes().first(1 << 17), std::byte{7}), 1 << 17);
}

TEST_F(LaneThread, AGpuThatHangsAndThenIsLostStaysLost) {
  answer = CUDA_ERROR_NOT_READY;
  open("", {.limit = milliseconds{500}}, script_answers_without_callbacks);
  accept(pieces(1));
  ASSERT_TRUE(eventually([&] { return refusal().has_value(); }));
  answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  ASSERT_TRUE(outcomes_.wait(1));
  EXPECT_EQ(outcomes_.failed().size(), 1U);
  // An idle lane looks again only after a second.
  const Nanoseconds looked = system_clock().now() + milliseconds{1200};
  while (refusal() && system_clock().now() < looked) std::this_thread::sleep_for(milliseconds{10});
  const auto refused = refusal();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::io);
}

TEST_F(LaneThread, TriesAgainToHaveSlots) {
  open("", {}, script_noted_copies);
  const auto plain = allocate(gpu_->machine, 64_KiB, Placement::on(test::kDram)).value();
  const auto at = reinterpret_cast<std::uintptr_t>(plain->memory());
  Piece staged = piece();
  staged.from = whole(*plain);
  {
    const ScopedVariable none("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
    accept({&staged, 1});
    expect_well();
    EXPECT_EQ(copied_from, at) << "there are none";
  }
  EXPECT_TRUE(eventually([&] {
    accept({&staged, 1});
    expect_well();
    return copied_from != at;
  }));
}

// Like a host function of other code in the process that blocks: the streams still answer.
TEST_F(LaneThread, CallbacksThatAreHeldUpHoldNothingUp) {
  open("", {.max_pieces = 4, .slots = 1, .limit = milliseconds{500}},
       [](Driver& scripted) { Callbacks::script(scripted, true); });
  const auto all = pieces(32);
  // Each by itself; more pieces than there are groups.
  const auto send_all = [&] {
    for (const Piece& piece : all) {
      accept({&piece, 1});
      expect_well();
    }
  };
  send_all();
  EXPECT_EQ(Callbacks::call(), 1U) << "none are asked for meanwhile";
  Callbacks::held = false;
  send_all();
}

Outcomes* heard = nullptr;
std::atomic<std::size_t> launched;  // pieces up to now, each by itself
std::atomic<bool> refusing;
std::atomic<int> callbacks_asked;

// A look may come between the launch of copies and the request for their callback. Then no callback
// is owed, and later copies request theirs again.
TEST_F(LaneThread, ALookBeforeTheCallbackIsRefusedOwesNone) {
  heard = &outcomes_;
  launched = 0;
  callbacks_asked = 0;
  open("", {.max_pieces = 1, .slots = 1}, [](Driver& scripted) {
    // Returns when a look at the streams has ended the group of this callback.
    scripted.cuLaunchHostFunc = [](CUstream stream, CUhostFn then, void* data) {
      ++callbacks_asked;
      if (!refusing) return real.cuLaunchHostFunc(stream, then, data);
      EXPECT_TRUE(heard->wait(launched)) << "no look ended it";
      return CUDA_ERROR_OUT_OF_MEMORY;
    };
  });
  const auto send = [&] {
    ++launched;
    accept(pieces(1));
    expect_well();
  };
  refusing = true;
  send();
  refusing = false;
  // Four groups, none of which is lost. A look may end others too; then the next group has no
  // callback.
  const Nanoseconds end = system_clock().now() + kBound;
  while (callbacks_asked < 9 && system_clock().now() < end) send();
  EXPECT_GE(callbacks_asked, 9);
}

std::atomic<bool> hangs;
std::atomic<CUstream> hung_stream;

TEST_F(LaneThread, OneDirectionThatHangsIsNoticedWhileAnotherWorks) {
  hangs = true;
  hung_stream = nullptr;
  open("", {.limit = milliseconds{500}}, [](Driver& scripted) {
    Callbacks::script(scripted, true);
    scripted.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                CUstream stream) {
      CUstream none = nullptr;
      hung_stream.compare_exchange_strong(none, stream);
      return real.cuMemcpyAsync(to, from, bytes, stream);
    };
    scripted.cuStreamQuery = [](CUstream stream) {
      return hangs && stream == hung_stream ? CUDA_ERROR_NOT_READY : real.cuStreamQuery(stream);
    };
  });
  accept(pieces(1));
  Callbacks::held = false;
  Piece back = pieces(2).back();
  std::swap(back.from, back.to);
  std::optional<Error> refused;
  std::size_t ended = 0;
  EXPECT_TRUE(eventually([&] {
    const auto taken = lane_->accept({&back, 1}, outcomes_);
    ended += taken.value_or(0);
    if (!taken) refused = taken.error();
    return refused || !outcomes_.wait(ended);
  }));
  hangs = false;
  ASSERT_TRUE(outcomes_.wait(ended + 1)) << "it answers again";
  Callbacks::call();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::timed_out);
}

std::atomic<bool> busy_with_kernels;

// Like other programs' kernels that occupy all multiprocessors.
void script_busy_gpu(Driver& scripted) {
  busy_with_kernels = true;
  Callbacks::script(scripted, true);
  scripted.cuStreamQuery = [](CUstream stream) {
    return busy_with_kernels ? CUDA_ERROR_NOT_READY : real.cuStreamQuery(stream);
  };
}

// The copy comes when the kernels end, and until then the caller does not get its memory back. This
// takes much longer than the limit of a copy engine.
TEST_F(LaneThread, CopiesInsideAGpuAndOfAKernelWaitForMultiprocessors) {
  for (const bool by_kernel : {true, false}) {
    SCOPED_TRACE(by_kernel);
    CudaOptions options{.limit = milliseconds{100}};
    if (by_kernel) options.gather = GatherLimit{.bytes = 64_KiB, .count = 2};
    open("", options, script_busy_gpu);
    std::vector<Piece> all = {inside_the_gpu()};
    if (by_kernel) all = pieces(3);
    if (by_kernel) std::swap(all[0].from, all[1].from);  // neighbours would be one copy
    const std::size_t before = outcomes_.count();
    accept(all);
    EXPECT_TRUE(eventually([&] { return refusal().has_value(); }));
    std::this_thread::sleep_for(milliseconds{1000});
    EXPECT_EQ(outcomes_.count(), before);
    const auto refused = refusal();
    busy_with_kernels = false;  // otherwise the lane's end would wait forever
    expect_well();
    Callbacks::call();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, ErrorCode::timed_out);
    lane_.reset();
  }
}

// A silent GPU may still write its pieces, so the process does not go on with that memory.
TEST_F(LaneThread, ASilentGpuIsGivenNoMoreAndThenTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_multiprocessors = [&] {
    open("", {.limit = milliseconds{10}}, script_busy_gpu);
    const Piece inside = inside_the_gpu();
    if (lane_->accept({&inside, 1}, outcomes_)) std::this_thread::sleep_for(kBound);
  };
  EXPECT_DEATH(wait_for_multiprocessors(), "a GPU hangs with memory of this process");
  const auto wait_for_engines = [&] {
    open("stall_after=20", {.limit = milliseconds{200}});
    std::optional<Error> refused;
    while (!refused) {
      const auto taken = lane_->accept(pieces(8), outcomes_);
      if (!taken) refused = taken.error();
    }
    if (refused->code == ErrorCode::timed_out) std::this_thread::sleep_for(kBound);
  };
  EXPECT_DEATH(wait_for_engines(), "a GPU hangs with memory of this process");
}

}  // namespace
}  // namespace headrace::cuda
