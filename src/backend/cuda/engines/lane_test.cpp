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

CUresult (*ask_attribute)(int*, CUdevice_attribute, CUdevice);
CUresult without_host_addresses(int* value, CUdevice_attribute what, CUdevice device) {
  const CUresult result = ask_attribute(value, what, device);
  if (what == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) *value = 0;
  return result;
}

TEST_F(CudaLane, GivesNoBatchesOfAddressesThatTheGpuDoesNotKnow) {
  open("", {}, [](Driver& scripted) {
    ask_attribute = scripted.cuDeviceGetAttribute;
    scripted.cuDeviceGetAttribute = without_host_addresses;
  });
  EXPECT_NE(lane_->note().find("single copies"), std::string::npos) << lane_->note();
}

TEST_F(CudaLane, CopiesPiecesThatContinueEachOther) {
  open("");
  for (std::size_t i = 0; i < 4 << 20; i += 4099) pinned_->memory()[i] = std::byte{7};
  const auto all = pieces(32);
  ASSERT_EQ(lane_->accept(all, outcomes_).value_or(0), 32U);
  ASSERT_TRUE(outcomes_.await(32));
  EXPECT_TRUE(outcomes_.failed().empty());
  const auto there = test::read_gpu(*memory_, 0, 2 << 20);
  EXPECT_TRUE(std::ranges::equal(there, pinned_->bytes().first(2 << 20)));
}

// The driver refuses a copy across registrations.
TEST_F(CudaLane, CopiesPiecesThatMeetWhereRegistrationsDo) {
  open("");
  auto plain = allocate(gpu_->machine, 1_MiB, Placement::on(test::kDram)).value();
  const TwoRegistered parts(plain->memory(), 512 << 10);
  std::ranges::fill(plain->bytes(), std::byte{9});
  auto all = pieces(3);
  for (std::size_t i = 0; i < 3; ++i) all[i].from = whole(*plain).part((6 + i) << 16, 64_KiB);
  ASSERT_EQ(lane_->accept(all, outcomes_).value_or(0), 3U);
  ASSERT_TRUE(outcomes_.await(3));
  EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
  EXPECT_EQ(test::read_gpu(*memory_, 0, 3 << 16), std::vector<std::byte>(3 << 16, std::byte{9}));
}

TEST_F(CudaLane, ShowsTwoGpusEachOthersMemoryAtTheFirstCopyBetweenThem) {
  open("devices=2");
  const auto other = *allocate(gpu_->machine, 64_KiB, Placement::on(test::kOtherGpu));
  const Piece piece{
      .from = whole(*memory_).part(0, 64_KiB), .to = whole(*other), .engine = test::kGpuEngine};
  const std::vector<std::byte> bytes(64 << 10, std::byte{7});
  test::write_gpu(*memory_, 0, bytes);
  for (std::uint32_t copies = 1; copies < 3; ++copies) {
    ASSERT_EQ(lane_->accept(std::span(&piece, 1), outcomes_).value(), 1U);
    ASSERT_TRUE(outcomes_.await(copies));
  }
  EXPECT_TRUE(outcomes_.failed().empty());
  EXPECT_EQ(test::read_gpu(*other, 0, bytes.size()), bytes);
  const Driver& used = **driver();
  const auto one = *Context::of(used, 0);
  const auto two = *Context::of(used, 1);
  for (const auto& [from, to] : {std::pair(one, two), {two, one}}) {
    const CurrentContext current(*from);
    EXPECT_EQ(used.cuCtxEnablePeerAccess(to->handle(), 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  }
}

TEST_F(CudaLane, TakesWhatOthersRegistered) {
  open("");
  // The memory has two registrations; the first piece crosses from one to the other.
  auto plain = allocate(gpu_->machine, 4_MiB, Placement::on(test::kDram)).value();
  const std::size_t part = 1 << 20;
  const TwoRegistered parts(plain->memory(), part);
  std::ranges::fill(plain->bytes(), std::byte{9});
  // The second piece is in memory that is not registered.
  const Piece pieces[] = {{.from = whole(*plain).part(part - 100, 200_B),
                           .to = whole(*memory_).part(0, 200_B),
                           .engine = test::kGpuEngine},
                          {.from = whole(*plain).part(2 * part - 100, 200_B),
                           .to = whole(*memory_).part(200, 200_B),
                           .engine = test::kGpuEngine}};
  ASSERT_EQ(lane_->accept(pieces, outcomes_).value_or(0), 2U);
  ASSERT_TRUE(outcomes_.await(2));
  EXPECT_EQ(test::read_gpu(*memory_, 0, 400), std::vector<std::byte>(400, std::byte{9}));
}

// Chooses among the threads of the test and of the lane.
enum class Pushing : std::uint8_t { all, not_in_the_test, not_in_the_lane };
std::atomic<Pushing> pushing;
const std::thread::id of_the_test = std::this_thread::get_id();
CUresult (*push_honestly)(CUcontext context) = nullptr;

CUresult push(CUcontext context) {
  const bool here = std::this_thread::get_id() == of_the_test;
  const Pushing now = pushing;
  const bool refused = now == (here ? Pushing::not_in_the_test : Pushing::not_in_the_lane);
  return refused ? CUDA_ERROR_INVALID_CONTEXT : push_honestly(context);
}

void script_pushing(Driver& scripted) {
  push_honestly = std::exchange(scripted.cuCtxPushCurrent_v2, push);
}

TEST_F(CudaLane, AContextThatCannotBeMadeCurrentIsAnErrorOfWhoSubmits) {
  pushing = Pushing::all;
  open("", {}, script_pushing);
  ASSERT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  ASSERT_TRUE(outcomes_.await(1));
  pushing = Pushing::not_in_the_test;
  const auto refused = lane_->accept(pieces(1), outcomes_);
  pushing = Pushing::all;
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("cannot use"), std::string::npos);
  EXPECT_EQ(lane_->accept(pieces(1), outcomes_).value_or(0), 1U);
  EXPECT_TRUE(outcomes_.await(2));
}

TEST_F(CudaLane, AContextThatIsNotCurrentInItsThreadFailsWhatThatWouldCopy) {
  pushing = Pushing::not_in_the_lane;
  open("", {}, script_pushing);
  auto plain = allocate(gpu_->machine, 64_KiB, Placement::on(test::kDram)).value();
  Piece piece = pieces(1).front();
  piece.from = whole(*plain);
  const auto taken = lane_->accept({&piece, 1}, outcomes_);
  if (taken) {
    ASSERT_TRUE(outcomes_.await(1));
    EXPECT_EQ(outcomes_.failed().size(), 1U);
  }
  const Error why = taken ? outcomes_.last() : taken.error();
  EXPECT_NE(why.message.find("cannot use"), std::string::npos) << why.message;
}

// Slots, streams and looks continue as usual.
TEST_F(CudaLane, CopiesWhileOthersCaptureAGraph) {
  open("capturing=1", {.gather = GatherLimit{.bytes = 64_KiB, .count = 2}});
  auto plain = allocate(gpu_->machine, 64_KiB, Placement::on(test::kDram)).value();
  std::ranges::fill(plain->bytes(), std::byte{7});
  auto all = pieces(3);
  all.back().from = whole(*plain);
  ASSERT_EQ(lane_->accept(all, outcomes_).value_or(0), 3U);
  ASSERT_TRUE(outcomes_.await(3));
  EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
  EXPECT_EQ(test::read_gpu(*memory_, 2 << 16, 100), std::vector<std::byte>(100, std::byte{7}));
}

}  // namespace
}  // namespace headrace::cuda
