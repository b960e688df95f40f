// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/gathering.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

// Launches and other copies of the driver since the count was set to 0.
Driver real;
std::vector<std::uint64_t> gathered;  // copies of each launch
std::size_t others = 0;               // calls that copy
bool refuse_launches = false;
bool refuse_attribute = false;

CUresult count_launch(CUfunction kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                      CUstream stream, void** parameters, void** extra) {
  gathered.push_back(static_cast<const CopyList*>(parameters[0])->count);
  if (refuse_launches) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return real.cuLaunchKernel(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                             stream, parameters, extra);
}

CUresult count_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  ++others;
  return real.cuMemcpyAsync(to, from, bytes, stream);
}

CUresult count_batch(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                     CUmemcpyAttributes* how, std::size_t* first, std::size_t hows,
                     CUstream stream) {
  ++others;
  return real.cuMemcpyBatchAsync_v2(to, from, sizes, count, how, first, hows, stream);
}

CUresult ask_pointer(void* value, CUpointer_attribute what, CUdeviceptr address) {
  if (what == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && refuse_attribute) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return real.cuPointerGetAttribute(value, what, address);
}

void counting(Driver& scripted) {
  real = scripted;
  scripted.cuLaunchKernel = count_launch;
  scripted.cuMemcpyAsync = count_copy;
  scripted.cuMemcpyBatchAsync_v2 = count_batch;
  scripted.cuPointerGetAttribute = ask_pointer;
  gathered.clear();
  others = 0;
  refuse_launches = refuse_attribute = false;
}

class Gathering : public LaneFixture {
 protected:
  void open_gathering(Bytes bytes, std::uint64_t count) {
    open("devices=2", {.max_pieces = 300, .gather = GatherLimit{bytes, count}}, counting);
    for (std::size_t i = 0; i < pinned_->bytes().size(); ++i) {
      pinned_->memory()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    }
  }
  // Copies every second block of pinned memory to neighbours on the GPU.
  std::vector<Piece> blocks(std::size_t count, std::uint64_t bytes) const {
    std::vector<Piece> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back({.from = whole(*pinned_).part(2 * i * bytes, Bytes{bytes}),
                      .to = whole(*memory_).part(i * bytes, Bytes{bytes}),
                      .engine = test::kGpuEngine,
                      .tag = i});
    }
    return made;
  }
  void copy(const std::vector<Piece>& pieces) {
    ASSERT_EQ(lane_->accept(pieces, outcomes_).value_or(0), pieces.size());
    sent_ += static_cast<std::uint32_t>(pieces.size());
    ASSERT_TRUE(outcomes_.await(sent_));
    EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
    for (const Piece& piece : pieces) {
      const auto there = test::read_gpu(*piece.to.object, piece.to.offset, piece.to.length.value);
      EXPECT_TRUE(std::ranges::equal(
          there, pinned_->bytes().subspan(piece.from.offset, piece.from.length.value)));
    }
  }
  std::uint32_t sent_ = 0;
};

using Counts = std::vector<std::uint64_t>;

TEST_F(Gathering, ManySmallCopiesAreOneLaunchForEach128) {
  open_gathering(4_KiB, 2);
  EXPECT_NE(lane_->note().find("gathers to it up to 4 KiB from 2"), std::string::npos)
      << lane_->note();
  copy(blocks(200, 4096));
  EXPECT_EQ(gathered, (Counts{128, 72}));
  EXPECT_EQ(others, 0U);
}

TEST_F(Gathering, FewOrLargeOrOddCopiesAreNot) {
  open_gathering(4_KiB, 8);
  copy(blocks(7, 4096));
  copy(blocks(8, 8192));
  copy(blocks(8, 24));
  EXPECT_EQ(gathered, Counts{});
  EXPECT_EQ(others, 3U);
  auto mixed = blocks(9, 4096);
  mixed.push_back({.from = whole(*pinned_).part(2 << 20, 64_KiB),
                   .to = whole(*memory_).part(2 << 20, 64_KiB),
                   .engine = test::kGpuEngine,
                   .tag = 9});
  copy(mixed);
  EXPECT_EQ(gathered, Counts{9}) << "the large one is copied by itself";
  EXPECT_EQ(others, 4U);
}

TEST_F(Gathering, RefusedLaunchesAreCopiedAsEver) {
  open_gathering(4_KiB, 2);
  refuse_launches = true;
  copy(blocks(200, 4096));
  EXPECT_EQ(gathered, Counts{128});
  EXPECT_EQ(others, 2U) << "batches of 128 at most";
}

// A kernel that touched such memory would end the context.
TEST_F(Gathering, WhatKernelsDoNotReachIsLeftToTheEngines) {
  open_gathering(4_KiB, 2);
  refuse_attribute = true;
  copy(blocks(8, 4096));
  refuse_attribute = false;
  const auto other = *allocate(gpu_->machine, 64_KiB, Placement::on(test::kOtherGpu));
  auto across = blocks(4, 4096);
  for (Piece& piece : across) piece.from = whole(*memory_).part(piece.from.offset, 4_KiB);
  for (Piece& piece : across) piece.to = whole(*other).part(piece.to.offset, 4_KiB);
  ASSERT_EQ(lane_->accept(across, outcomes_).value_or(0), 4U);
  ASSERT_TRUE(outcomes_.await(sent_ + 4));
  EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
  EXPECT_EQ(gathered, Counts{});
}

TEST_F(Gathering, NothingIsWithoutALimit) {
  open("", {}, counting);
  copy(blocks(64, 4096));
  EXPECT_EQ(gathered, Counts{});
  EXPECT_EQ(lane_->note().find("gathers"), std::string::npos) << lane_->note();
}

CUresult without_attribute_91(int* value, CUdevice_attribute what, CUdevice device) {
  const CUresult result = real.cuDeviceGetAttribute(value, what, device);
  if (what == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) *value = 0;
  return result;
}

TEST_F(Gathering, NothingIsWhereTheGpuDoesNotKnowTheHostsAddresses) {
  open("", {.gather = GatherLimit{4_KiB, 2}}, [](Driver& scripted) {
    counting(scripted);
    scripted.cuDeviceGetAttribute = without_attribute_91;
  });
  copy(blocks(64, 4096));
  EXPECT_EQ(gathered, Counts{});
}

CUresult load_nothing(CUmodule*, const void*, unsigned, CUjit_option*, void**) {
  return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

TEST_F(Gathering, WithoutItsKernelCopiesGoAsEver) {
  open("", {.gather = GatherLimit{4_KiB, 2}}, [](Driver& scripted) {
    counting(scripted);
    scripted.cuModuleLoadDataEx = load_nothing;
  });
  EXPECT_EQ(lane_->degraded(), "") << "nobody knows yet";
  copy(blocks(64, 4096));
  EXPECT_EQ(gathered, Counts{});
  const std::string told = lane_->degraded();
  EXPECT_NE(told.find("gathers nothing"), std::string::npos) << told;
  EXPECT_NE(told.find("cannot load the kernels"), std::string::npos) << told;
}

TEST_F(Gathering, WhatIsThereIsNotDegraded) {
  open_gathering(4_KiB, 2);
  copy(blocks(64, 4096));
  EXPECT_EQ(lane_->degraded(), "");
}

TEST(GatherLimits, AreStatedOrSaidByTheEnvironmentOrMeasured) {
  using Stated = std::optional<GatherLimit>;
  EXPECT_EQ(*stated_gather_limit({}), Stated());
  {
    const ScopedVariable said("HEADRACE_GPU_GATHER", "16384,32");
    EXPECT_EQ(*stated_gather_limit({}), Stated({16_KiB, 32}));
    EXPECT_EQ(*stated_gather_limit({.gather = GatherLimit{}}), Stated(GatherLimit{}));
  }
  const ScopedVariable said("HEADRACE_GPU_GATHER", "0");
  EXPECT_EQ(*stated_gather_limit({}), Stated({0_B, 2}));
  for (const char* wrong : {"", "x", "16K", "16,", ",2", "16,2,3", "-1", "1048577"}) {
    const ScopedVariable bad("HEADRACE_GPU_GATHER", wrong);
    const auto limit = stated_gather_limit({});
    ASSERT_FALSE(limit) << wrong;
    EXPECT_EQ(limit.error().code, ErrorCode::invalid);
  }
}

TEST(GatherLimits, OfAnEngineAreThoseOfItsRates) {
  const test::FakeGpu gpu("devices=2");
  Machine machine = gpu.machine;
  const Engine& engine = *machine.find(test::kGpuEngine);
  const auto rate = [&](EngineId by, NodeId from, NodeId to, std::optional<GatherLimit> gather) {
    machine.copy_rates.push_back(
        {.engine = by, .from = from, .to = to, .bandwidth = {1e9}, .source = "", .gather = gather});
  };
  rate(test::kGpuEngine, test::kDram, test::kGpu, GatherLimit{16_KiB, 32});
  rate(test::kGpuEngine, test::kHbm, test::kGpu, GatherLimit{4_KiB, 64});
  rate(test::kGpuEngine, test::kGpu, test::kDram, std::nullopt);
  rate(test::kOtherGpuEngine, test::kGpu, test::kDram, GatherLimit{4_KiB, 64});
  rate(test::kGpuEngine, test::kGpu, test::kGpu, GatherLimit{4_KiB, 64});
  const GatherLimits none{};
  EXPECT_EQ(gather_limits(machine, engine, std::nullopt),
            (GatherLimits{GatherLimit{4_KiB, 64}, GatherLimit{}, GatherLimit{}}));
  EXPECT_EQ(gather_limits(machine, engine, GatherLimit{}), none);
  const GatherLimit stated{1_KiB, 3};
  EXPECT_EQ(gather_limits(machine, engine, stated), (GatherLimits{stated, stated, stated}));
}

}  // namespace
}  // namespace headrace::cuda
