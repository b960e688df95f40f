// SPDX-License-Identifier: Apache-2.0
// Tests lack of memory in two places. While two GPUs meet, each allocation of their first copy
// fails in turn: this costs at most that copy, and nothing stays held. In a lane's thread, it costs
// the pieces that the thread has at that time.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <utility>

#include "backend/cuda/engines/lane_testing.h"
#include "tests/support/failing_new_testing.h"
#include "tests/support/fake_cuda/spared_driver.h"

#if !defined(HEADRACE_TSAN)

namespace {

constinit thread_local std::ptrdiff_t until_failure = 0;  // for this thread; 0: none fails
constinit std::atomic<bool> lanes_have_none = false;      // all fail in the threads of lanes
constinit std::atomic<std::size_t> failures_of_lanes = 0;

}  // namespace

bool headrace::test::allocation_fails() noexcept {
  if (in_driver) return false;
  if (lanes_have_none && this_thread_is("headrace-gpu")) {
    ++failures_of_lanes;
    return true;
  }
  return until_failure > 0 && --until_failure == 0;
}

namespace headrace::cuda {
namespace {

// Calls `body`, in which the n-th allocation of this thread fails (0: none). Returns whether it
// did.
bool fails_at(std::ptrdiff_t n, const auto& body) {
  until_failure = n;
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
  return n > 0 && std::exchange(until_failure, 0) == 0;
}

class CudaLaneMemory : public LaneFixture {
 protected:
  // Whether all of it needs fewer than n allocations.
  bool copies(const Piece& piece, std::ptrdiff_t n) {
    Outcomes outcomes;
    std::size_t accepted = 0;
    const bool failed =
        fails_at(n, [&] { accepted = lane_->accept(std::span(&piece, 1), outcomes).value_or(0); });
    EXPECT_TRUE(accepted == 1 || failed);
    if (accepted == 1) {
      EXPECT_TRUE(outcomes.wait(1));
    }
    for (const auto tag : outcomes.failed()) {
      EXPECT_TRUE(failed) << tag;
      EXPECT_EQ(outcomes.last().code, ErrorCode::exhausted);
    }
    return !failed;
  }
};

TEST_F(CudaLaneMemory, ThatRunsOutWhileTwoGpusMeetCostsOneCopyAtMost) {
  const std::vector<std::byte> bytes(64 << 10, std::byte{7});
  bool over = false;
  std::ptrdiff_t n = 1;
  for (; !over; ++n) {
    open("devices=2", {}, test::spare_all);
    EXPECT_TRUE(copies(pieces(1)[0], 0));  // so that the lane has begun
    auto other = *allocate(gpu_->machine, 64_KiB, Placement::on(test::kOtherGpu));
    const Piece piece{
        .from = whole(*memory_).part(0, 64_KiB), .to = whole(*other), .engine = test::kGpuEngine};
    test::write_gpu(*memory_, 0, bytes);
    over = copies(piece, n);
    EXPECT_TRUE(copies(piece, 0));
    EXPECT_EQ(test::read_gpu(*other, 0, bytes.size()), bytes);
    expect_met();
    lane_.reset();
    memory_.reset();
    pinned_.reset();
    other.reset();
    EXPECT_FALSE(Context::made(**driver(), 0) || Context::made(**driver(), 1));
    if (HasFailure()) FAIL() << "allocation " << n;
  }
  EXPECT_GT(n, 5);
}

TEST_F(CudaLaneMemory, ThatRunsOutInTheThreadOfALaneCostsPieces) {
  constexpr std::uint32_t kPieces = 100;
  open("", {.slots = 2, .slot = 64_KiB}, test::spare_all);
  const auto plain =
      allocate(gpu_->machine, Bytes{kPieces << 12}, Placement::on(test::kDram)).value();
  std::ranges::fill(plain->bytes(), std::byte{7});
  const auto send_all = [&](bool to_gpu) {
    Outcomes outcomes(kPieces);
    std::vector<Piece> all;
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      const Extent here = whole(*plain).part(i << 12, 4_KiB);
      const Extent there = whole(*memory_).part(i << 12, 4_KiB);
      all.push_back({.from = to_gpu ? here : there,
                     .to = to_gpu ? there : here,
                     .engine = test::kGpuEngine,
                     .tag = i});
    }
    EXPECT_EQ(lane_->accept(all, outcomes).value_or(0), kPieces);
    EXPECT_TRUE(outcomes.wait(kPieces));
    if (!outcomes.failed().empty()) {
      EXPECT_EQ(outcomes.last().code, ErrorCode::exhausted);
    }
    return outcomes.well().size();
  };
  EXPECT_EQ(send_all(true), kPieces);  // then it has its slots
  lanes_have_none = true;
  for (const bool to_gpu : {true, false, true}) send_all(to_gpu);
  lanes_have_none = false;
  EXPECT_GT(failures_of_lanes, 0U);
  EXPECT_EQ(send_all(true), kPieces);
  std::ranges::fill(plain->bytes(), std::byte{0});
  EXPECT_EQ(send_all(false), kPieces);
  EXPECT_EQ(std::ranges::count(plain->bytes(), std::byte{7}), kPieces << 12);
}

TEST(CrewMemory, ThatRunsOutAtItsStartLeavesNoThread) {
  std::ptrdiff_t n = 1;
  for (bool failed = true; failed; ++n) {
    std::atomic<int> done = 0;
    const std::function<void(Task&)> work = [&](Task&) { ++done; };
    Task task;
    std::unique_ptr<Crew> crew;
    failed = fails_at(n, [&] { crew = Crew::start({}, work); });
    if (crew == nullptr) continue;
    crew->give(task);
    crew.reset();
    EXPECT_EQ(done, 1);
  }
  EXPECT_GT(n, 4);
}

// An exception or an error says that no piece was accepted.
TEST_F(CudaLaneMemory, ThatRunsOutForTheSecondEngineKeepsThePiecesOfTheFirst) {
  open("devices=2", {}, test::spare_all);
  const auto other = *allocate(gpu_->machine, 64_KiB, Placement::on(test::kOtherGpu));
  auto both = pieces(2);
  both[1].to = whole(*other);
  both[1].engine = test::kOtherGpuEngine;
  std::ptrdiff_t n = 1;
  for (bool failed = true; failed; ++n) {
    auto backend = *open_cuda(gpu_->machine, {test::kGpuEngine, test::kOtherGpuEngine},
                              {.max_pieces = 2, .slots = 1, .driver = &scripted_});
    Outcomes outcomes(4);
    ASSERT_EQ(backend->submit(both, outcomes).value_or(0), 2U);
    ASSERT_TRUE(outcomes.wait(2));
    std::size_t accepted = 0;
    failed = fails_at(n, [&] { accepted = backend->submit(both, outcomes).value_or(0); });
    backend.reset();
    ASSERT_EQ(outcomes.count(), 2 + accepted) << "allocation " << n;
  }
  EXPECT_GT(n, 5);
}

}  // namespace
}  // namespace headrace::cuda

#endif  // HEADRACE_TSAN
