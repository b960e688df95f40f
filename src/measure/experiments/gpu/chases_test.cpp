#include "measure/experiments/gpu/chases.h"

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuChases, FollowTheChainInEachMemory) {
  const test::FakeGpu fake("memory=64M,paradigm=ats");
  Random random(1);
  const auto sample = [&](std::string_view by, std::string_view memory) {
    SCOPED_TRACE(std::string(by) + " " + std::string(memory));
    sample_of(prepare_chase(on_fake(fake, {.by = by, .memory = memory, .bytes = 1_MiB}), random));
  };
  sample(kKernel, kPinned);
  sample(kKernel, kDevice);
  sample(kCpu, kManaged);
}

TEST(GpuChases, ByCpusNeedMemoryThatTheyReadInPlace) {
  for (const char* paradigm : {"ats", "managed"}) {
    const test::FakeGpu fake(std::string("paradigm=") + paradigm);
    EXPECT_EQ(host_reads_gpu(*on_fake(fake, {}).gpu), std::string_view(paradigm) == "ats");
  }
}

}  // namespace
}  // namespace headrace::experiment_gpu
