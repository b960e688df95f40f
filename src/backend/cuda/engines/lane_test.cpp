// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

using CudaLane = LaneFixture;

// Two parts of memory, each registered separately with the driver for a scope.
class TwoRegistered {
 public:
  TwoRegistered(std::byte* memory, std::size_t part) : memory_(memory), part_(part) {
    const CurrentContext current(*context_);
    for (std::byte* at : {memory_, memory_ + part_}) {
      EXPECT_EQ(context_->driver().cuMemHostRegister_v2(at, part_, 0), CUDA_SUCCESS);
    }
  }
  ~TwoRegistered() {
    const CurrentContext current(*context_);
    for (std::byte* at : {memory_, memory_ + part_}) context_->driver().cuMemHostUnregister(at);
  }
  TwoRegistered(const TwoRegistered&) = delete;
  TwoRegistered& operator=(const TwoRegistered&) = delete;

 private:
  const std::shared_ptr<const Context> context_ = Context::of(**driver(), 0).value();
  std::byte* const memory_;
  const std::size_t part_;
};

TEST_F(CudaLane, GivesNoBatchesOfAddressesThatTheGpuDoesNotKnow) {
  open("", {}, [](Driver& scripted) { scripted.cuDeviceGetAttribute = without_host_addresses; });
  EXPECT_NE(lane_->note().find("single copies"), std::string::npos) << lane_->note();
}

// The driver refuses a copy across registrations. Pieces meet where registrations do, a piece
// crosses from one to the other, and a piece lies in memory that is not registered.
TEST_F(CudaLane, CopiesAcrossTheRegistrationsOfOthers) {
  open("");
  const auto plain = allocate(gpu_->machine, 4_MiB, Placement::on(test::kDram)).value();
  const std::size_t part = 1 << 20;
  const TwoRegistered parts(plain->memory(), part);
  std::ranges::fill(plain->bytes(), std::byte{9});
  auto all = pieces(5);
  for (std::size_t i = 0; i < 3; ++i) all[i].from = whole(*plain).part(part + (i << 16), 64_KiB);
  all[0].from = whole(*plain).part(part - (1 << 16), 64_KiB);
  all[3].from = whole(*plain).part(part - 100, 64_KiB);
  all[4].from = whole(*plain).part(2 * part - 100, 64_KiB);
  copy(all);
}

TEST_F(CudaLane, ShowsTwoGpusEachOthersMemoryAtTheFirstCopyBetweenThem) {
  open("devices=2");
  const auto other = *allocate(gpu_->machine, 64_KiB, Placement::on(test::kOtherGpu));
  const Piece piece{
      .from = whole(*memory_).part(0, 64_KiB), .to = whole(*other), .engine = test::kGpuEngine};
  const std::vector<std::byte> bytes(64 << 10, std::byte{7});
  test::write_gpu(*memory_, 0, bytes);
  for (int copies = 0; copies < 2; ++copies) {
    accept({&piece, 1});
    expect_well();
  }
  EXPECT_EQ(test::read_gpu(*other, 0, bytes.size()), bytes);
  expect_met();
}

// Chooses among the threads of the test and of the lane.
enum class Pushing : std::uint8_t { all, not_in_the_test, not_in_the_lane };
std::atomic<Pushing> pushing;
const std::thread::id of_the_test = std::this_thread::get_id();

void script_pushing(Driver& scripted) {
  scripted.cuCtxPushCurrent_v2 = [](CUcontext context) {
    const bool here = std::this_thread::get_id() == of_the_test;
    const bool refused = pushing == (here ? Pushing::not_in_the_test : Pushing::not_in_the_lane);
    return refused ? CUDA_ERROR_INVALID_CONTEXT : real.cuCtxPushCurrent_v2(context);
  };
}

TEST_F(CudaLane, AContextThatCannotBeMadeCurrentIsAnErrorOfWhoSubmits) {
  pushing = Pushing::all;
  open("", {}, script_pushing);
  copy(pieces(1));
  pushing = Pushing::not_in_the_test;
  const auto refused = refusal();
  pushing = Pushing::all;
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("cannot use"), std::string::npos);
  copy(pieces(1));
}

TEST_F(CudaLane, AContextThatIsNotCurrentInItsThreadFailsWhatThatWouldCopy) {
  pushing = Pushing::not_in_the_lane;
  open("", {}, script_pushing);
  const auto plain = allocate(gpu_->machine, 64_KiB, Placement::on(test::kDram)).value();
  Piece staged = piece();
  staged.from = whole(*plain);
  const auto taken = lane_->accept({&staged, 1}, outcomes_);
  if (taken) {
    ASSERT_TRUE(outcomes_.wait(1));
    EXPECT_EQ(outcomes_.failed().size(), 1U);
  }
  const Error why = taken ? outcomes_.last() : taken.error();
  EXPECT_NE(why.message.find("cannot use"), std::string::npos) << why.message;
}

// Slots, streams and looks continue as usual.
TEST_F(CudaLane, CopiesWhileOthersCaptureAGraph) {
  open("capturing=1", {.gather = GatherLimit{.bytes = 64_KiB, .count = 2}});
  const auto plain = allocate(gpu_->machine, 64_KiB, Placement::on(test::kDram)).value();
  std::ranges::fill(plain->bytes(), std::byte{7});
  auto all = pieces(3);
  all.back().from = whole(*plain);
  copy(all);
}

}  // namespace
}  // namespace headrace::cuda
