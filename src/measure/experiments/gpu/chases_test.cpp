// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/chases.h"

#include <cstring>

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuChases, FollowTheChainInEachMemory) {
  const test::FakeGpu fake("memory=64M,paradigm=ats,l2=3M");
  Random random(1);
  const auto sample = [&](std::string_view by, std::string_view memory) {
    SCOPED_TRACE(std::string(by) + " " + std::string(memory));
    const auto found = sample_of(
        prepare_chase(on_fake(fake, {.by = by, .memory = memory, .bytes = 1_MiB}), random));
    EXPECT_EQ(found.details.at("l2_bytes"), 3 << 20);
  };
  sample(kKernel, kPinned);
  sample(kKernel, kDevice);
  sample(kCpu, kManaged);
}

TEST(GpuChases, ChainWithAWrongEnd_GivesNoLatency) {
  const test::FakeGpu fake("memory=64M,paradigm=ats");
  cuda::Driver scribbling = **cuda::driver();
  scribbling.cuMemPrefetchAsync_v2 = [](cuda::CUdeviceptr address, std::size_t bytes,
                                        cuda::CUmemLocation, unsigned, cuda::CUstream) {
    std::memset(reinterpret_cast<void*>(address), 0, bytes);
    return cuda::CUDA_SUCCESS;
  };
  Random random(1);
  const GpuSetting setting = on_fake(fake, {.by = kCpu, .memory = kManaged, .bytes = 64_KiB});
  const auto chase = prepare_chase(by_driver(setting, scribbling), random);
  ASSERT_TRUE(chase) << chase.error().message;
  const auto sample = (*chase)->sample();
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().code, ErrorCode::io);
}

TEST(GpuChases, ByCpusNeedMemoryThatTheyReadInPlace) {
  for (const char* paradigm : {"ats", "managed"}) {
    const test::FakeGpu fake(std::string("paradigm=") + paradigm);
    EXPECT_EQ(host_reads_gpu(*on_fake(fake, {}).gpu), std::string_view(paradigm) == "ats");
  }
}

}  // namespace
}  // namespace headrace::experiment_gpu
