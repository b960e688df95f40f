// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/gpu/managed_memory.h"

#include <gtest/gtest.h>

#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

TEST(ManagedMemory, AGpuIsDescribedByItsNumber) {
  const test::FakeGpu fake("memory=64M,devices=2,paradigm=hmm");
  const auto machine = Machine::discover();
  const auto gpu = unified_memory_gpu(*machine, 1);
  ASSERT_TRUE(gpu) << gpu.error().message;
  EXPECT_EQ(gpu->capacity, 64_MiB);
  EXPECT_EQ(gpu->paradigm, GpuParadigm::hmm);
  EXPECT_EQ(unified_memory_gpu(*machine, 2).error().code, ErrorCode::absent);
  const ScopedVariable nowhere("HEADRACE_LIBCUDA", "/nowhere.so");
  EXPECT_EQ(unified_memory_gpu(*machine, 0).error().code, ErrorCode::absent);
}

TEST(ManagedMemory, InstancesOfOneGpuKeepTheirParadigms) {
  const test::FakeGpu fake("devices=2,mig=1,memory=64M,sms=4");
  Machine machine = fake.machine;
  for (Node& node : machine.nodes) {
    if (node.id == test::kOtherGpu) node.gpu->paradigm = GpuParadigm::hmm;
    if (node.id == test::kGpu) node.gpu->paradigm = GpuParadigm::managed;
  }
  EXPECT_EQ(unified_memory_gpu(machine, 0)->paradigm, GpuParadigm::managed);
  EXPECT_EQ(unified_memory_gpu(machine, 1)->paradigm, GpuParadigm::hmm);
}

}  // namespace
}  // namespace headrace
