// SPDX-License-Identifier: Apache-2.0
// Tests the copies that kernels make, and pieces that are lists.
#include "backend/cuda/engines/gathering.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "backend/cuda/engines/lane_testing.h"

namespace headrace::cuda {
namespace {

using Counts = std::vector<std::uint64_t>;

// Launches and other copies of the driver since the last open().
Counts gathered;         // copies of each launch
std::size_t others = 0;  // calls that copy
bool refuse_launches = false;
bool refuse_attribute = false;
std::uint64_t refused_from = 0;  // copies of this address

void counting(Driver& scripted) {
  gathered.clear();
  others = 0;
  refused_from = 0;
  refuse_launches = refuse_attribute = false;
  scripted.cuLaunchKernel = [](CUfunction kernel, unsigned grid, unsigned, unsigned, unsigned block,
                               unsigned, unsigned, unsigned, CUstream stream, void** parameters,
                               void**) {
    gathered.push_back(static_cast<const CopyList*>(parameters[0])->count);
    if (refuse_launches) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return real.cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
  };
  scripted.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                              CUstream stream) {
    ++others;
    if (from == refused_from) return CUDA_ERROR_OUT_OF_MEMORY;
    return real.cuMemcpyAsync(to, from, bytes, stream);
  };
  scripted.cuMemcpyBatchAsync_v2 = [](CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes,
                                      std::size_t count, CUmemcpyAttributes* how,
                                      std::size_t* first, std::size_t hows, CUstream stream) {
    ++others;
    if (refused_from != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return real.cuMemcpyBatchAsync_v2(to, from, sizes, count, how, first, hows, stream);
  };
  scripted.cuPointerGetAttribute = [](void* value, CUpointer_attribute what, CUdeviceptr address) {
    if (what == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && refuse_attribute) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return real.cuPointerGetAttribute(value, what, address);
  };
}

class Gathering : public LaneFixture {
 protected:
  void open_gathering(Bytes bytes, std::uint64_t count) {
    open("devices=2", {.max_pieces = 300, .gather = GatherLimit{bytes, count}}, counting);
  }
  // Copies every second block of pinned memory to neighbours on the GPU.
  std::vector<MovePair> parts(std::size_t count, std::uint64_t bytes) const {
    std::vector<MovePair> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back({.to = whole(*memory_).part(i * bytes, Bytes{bytes}),
                      .from = whole(*pinned_).part(2 * i * bytes, Bytes{bytes})});
    }
    return made;
  }
  std::vector<Piece> blocks(std::size_t count, std::uint64_t bytes) const {
    std::vector<Piece> made;
    for (const MovePair& part : parts(count, bytes)) {
      made.push_back(
          {.from = part.from, .to = part.to, .engine = test::kGpuEngine, .tag = made.size()});
    }
    return made;
  }
};

TEST_F(Gathering, ManySmallCopiesAreOneLaunchForEach128) {
  open_gathering(4_KiB, 2);
  EXPECT_NE(lane_->note().find("gathers to it up to 4 KiB from 2"), std::string::npos)
      << lane_->note();
  copy(blocks(200, 4096));
  EXPECT_EQ(gathered, (Counts{128, 72}));
  EXPECT_EQ(others, 0U);
  EXPECT_EQ(lane_->degraded(), "");
}

TEST_F(Gathering, FewOrLargeOrOddCopiesAreNot) {
  open_gathering(4_KiB, 8);
  copy(blocks(7, 4096));
  copy(blocks(8, 8192));
  copy(blocks(8, 24));
  EXPECT_EQ(gathered, Counts{});
  EXPECT_EQ(others, 3U);
  auto mixed = blocks(9, 4096);
  mixed.push_back(pieces(33).back());
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
  accept(across);
  expect_well();
  EXPECT_EQ(gathered, Counts{});
}

TEST_F(Gathering, NothingIsWithoutALimitOrWhereTheGpuDoesNotKnowTheHostsAddresses) {
  open("", {}, counting);
  copy(blocks(64, 4096));
  EXPECT_EQ(gathered, Counts{});
  EXPECT_EQ(lane_->note().find("gathers"), std::string::npos) << lane_->note();
  lane_.reset();
  open("", {.gather = GatherLimit{4_KiB, 2}}, [](Driver& scripted) {
    counting(scripted);
    scripted.cuDeviceGetAttribute = without_host_addresses;
  });
  copy(blocks(64, 4096));
  EXPECT_EQ(gathered, Counts{});
}

TEST_F(Gathering, WithoutItsKernelCopiesGoAsEver) {
  open("", {.gather = GatherLimit{4_KiB, 2}}, [](Driver& scripted) {
    counting(scripted);
    scripted.cuModuleLoadDataEx = [](CUmodule*, const void*, unsigned, CUjit_option*, void**) {
      return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    };
  });
  EXPECT_EQ(lane_->degraded(), "") << "nobody knows yet";
  copy(blocks(64, 4096));
  EXPECT_EQ(gathered, Counts{});
  const std::string why = lane_->degraded();
  EXPECT_NE(why.find("gathers nothing"), std::string::npos) << why;
  EXPECT_NE(why.find("cannot load the kernels"), std::string::npos) << why;
}

class LaneLists : public Gathering {
 protected:
  // Copies all parts as one piece.
  void accept_list(std::span<const MovePair> parts, std::uint8_t mark = 0) {
    list_ = {.parts = parts, .failed = std::vector<std::uint8_t>(parts.size(), mark)};
    const Piece piece{.from = parts[0].from,
                      .to = parts[0].to,
                      .engine = test::kGpuEngine,
                      .tag = 1,
                      .list = &list_};
    accept({&piece, 1});
    ASSERT_TRUE(outcomes_.wait(sent_));
  }
  PieceList list_;
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
  for (const auto& [limit, bytes] : {std::pair{GatherLimit{128_KiB, 16}, 4096UL},
                                     {GatherLimit{128_KiB, 16}, 20000UL},
                                     {GatherLimit{128_KiB, 16}, 4100UL},
                                     {GatherLimit{}, 4096UL}}) {
    open("", {.gather = limit});
    for (int turn = 0; turn < 3; ++turn) {
      const auto pairs = parts(100, bytes);
      accept_list(pairs, 1);
      EXPECT_TRUE(std::ranges::all_of(
          pairs, [](const MovePair& part) { return arrived(part.to, part.from); }));
      EXPECT_EQ(std::ranges::count(list_.failed, 0), 100) << "marks of another engine";
    }
    expect_well();
    lane_.reset();
  }
}

TEST_F(LaneLists, MarkThePartsThatFailed) {
  open("", {}, counting);
  const auto pairs = parts(20, 4096);
  refuse_launches = true;
  refused_from = reinterpret_cast<std::uintptr_t>(pairs[7].from.memory());
  accept_list(pairs);
  EXPECT_EQ(outcomes_.failed(), Counts{1});
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(list_.failed[i] != 0, i == 7) << i;
    EXPECT_EQ(arrived(pairs[i].to, pairs[i].from), i != 7) << i;
  }
}

TEST_F(LaneLists, OfALostGpuHaveNoMarks) {
  open("latency=20ms", {}, [](Driver& scripted) {
    counting(scripted);
    Callbacks::script(scripted, true);
    scripted.cuStreamQuery = [](CUstream) { return CUDA_ERROR_ILLEGAL_ADDRESS; };
  });
  const auto pairs = parts(20, 4096);
  refuse_launches = true;
  refused_from = reinterpret_cast<std::uintptr_t>(pairs[7].from.memory());
  accept_list(pairs);
  EXPECT_EQ(outcomes_.failed(), Counts{1});
  EXPECT_EQ(outcomes_.last().code, ErrorCode::io);
  EXPECT_EQ(std::ranges::count(list_.failed, 0), 20) << "all parts have failed";
  Callbacks::call();
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
  EXPECT_EQ(gather_limits(machine, engine, std::nullopt),
            (GatherLimits{GatherLimit{4_KiB, 64}, GatherLimit{}, GatherLimit{}}));
  EXPECT_EQ(gather_limits(machine, engine, GatherLimit{}), GatherLimits{});
  const GatherLimit stated{1_KiB, 3};
  EXPECT_EQ(gather_limits(machine, engine, stated), (GatherLimits{stated, stated, stated}));
}

}  // namespace
}  // namespace headrace::cuda
