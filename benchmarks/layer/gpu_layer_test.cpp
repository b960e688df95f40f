// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "benchmarks/layer/layer.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

TEST(GpuLayer, ReadsALayerBehindTheOther) {
  const test::FakeGpu fake("memory=64M,sms=4");
  // Past the end of the memory, and more than it has; 3 MiB is a multiple of neither.
  for (const Bytes bytes : {16_B, 1_MiB + 16_B, 7_MiB}) {
    const auto made = run_layers_on_gpu(
        fake.machine, {.gpu = test::kGpu, .memory = 3_MiB, .bytes = bytes, .runs = 4});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_TRUE(made->emulated);
    EXPECT_EQ(made->layers.size(), 4u);
    EXPECT_EQ(made->others.size(), 12u);
    for (const auto* runs : {&made->layers, &made->others}) {
      for (const GpuLayerRun& run : *runs) {
        EXPECT_TRUE(run.correct);
        EXPECT_GT(run.blocks, 0u);
        EXPECT_GE(run.time.count(), 0);
      }
    }
  }
}

// As on a GH200: node 0 is both the host's and the GPU's.
TEST(GpuLayer, ReadsMemoryOfAGpuThatIsANumaNode) {
  const FakeCudaLibrary library("paradigm=ats,numa_node=0,memory=64M,sms=4");
  Machine machine = *Machine::discover();
  ASSERT_TRUE(machine.find(NodeId{0})->gpu);
  const GpuLayerWork work{.gpu = NodeId{0}, .memory = 3_MiB, .bytes = 7_MiB, .runs = 2};
  const auto made = run_layers_on_gpu(machine, work);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(made->layers.size(), 2u);
  for (const GpuLayerRun& run : made->layers) EXPECT_TRUE(run.correct);
  // A driver that reports such a NUMA node, but gives the GPU no access to the host's pages.
  const FakeCudaLibrary other("paradigm=managed,memory=64M,sms=4");
  const auto refused = run_layers_on_gpu(machine, work);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST(GpuLayer, KeepsWhatWasReadBeforeAStop) {
  const test::FakeGpu fake("memory=64M,sms=4");
  unsigned asked = 0;
  const auto made = run_layers_on_gpu(
      fake.machine, {.gpu = test::kGpu, .memory = 1_MiB, .bytes = 1_MiB, .runs = 9},
      {.stop = [&] { return ++asked > 2; }});
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->layers.size(), 2u);
}

TEST(GpuLayer, RefusesWhatIsNone) {
  const test::FakeGpu fake("memory=64M,sms=4");
  const auto code = [&](const GpuLayerWork& work) {
    const auto made = run_layers_on_gpu(fake.machine, work);
    return made ? std::nullopt : std::optional(made.error().code);
  };
  EXPECT_EQ(code({.gpu = test::kDram, .memory = 1_MiB, .bytes = 1_MiB}), ErrorCode::absent);
  EXPECT_EQ(code({.gpu = NodeId{77}, .memory = 1_MiB, .bytes = 1_MiB}), ErrorCode::absent);
  EXPECT_EQ(code({.gpu = test::kGpu, .memory = 1000_B, .bytes = 1_MiB}), ErrorCode::invalid);
  EXPECT_EQ(code({.gpu = test::kGpu, .memory = 1_MiB, .bytes = 8_B}), ErrorCode::invalid);
  EXPECT_EQ(code({.gpu = test::kGpu, .memory = 1_GiB, .bytes = 1_MiB}), ErrorCode::exhausted);
}

}  // namespace
}  // namespace headrace
