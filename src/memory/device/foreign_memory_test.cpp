// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

#include "headrace/buffer.h"
#include "headrace/gpu/memory.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

using test::kGpu;
using test::kOtherGpu;

TEST(ForeignMemory, IsOfTheGpuThatTheDriverNames) {
  const test::FakeGpu gpu("devices=2");
  const auto buffer = allocate(gpu.machine, 1_MiB, Placement::on(kOtherGpu)).value();
  const std::uint64_t address = *buffer->device_address();
  const auto found = gpu_node(gpu.machine, address + 100, 1000_B);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, kOtherGpu);
  EXPECT_EQ(gpu_ordinal(address, 1_MiB), 1);
  Machine without = gpu.machine;
  std::erase_if(without.nodes, [](const Node& node) { return node.id == kOtherGpu; });
  EXPECT_EQ(gpu_node(without, address, 1_MiB).error().code, ErrorCode::absent);
}

TEST(ForeignMemory, OfNoGpuIsRefused) {
  const test::FakeGpu gpu;
  const auto buffer = allocate(gpu.machine, 1_MiB, Placement::on(kGpu)).value();
  const std::uint64_t address = *buffer->device_address();
  const auto code = [&](std::uint64_t at, Bytes bytes) {
    return gpu_node(gpu.machine, at, bytes).error().code;
  };
  EXPECT_EQ(code(address, 3_GiB), ErrorCode::invalid);
  EXPECT_EQ(code(64, 1_B), ErrorCode::invalid);
  EXPECT_EQ(code(address, 0_B), ErrorCode::invalid);
  const auto context = cuda::Context::of(**cuda::driver(), 0).value();
  const cuda::CurrentContext current(*context);
  cuda::CUdeviceptr managed = 0;
  ASSERT_EQ(context->driver().cuMemAllocManaged(&managed, 4096, cuda::CU_MEM_ATTACH_GLOBAL),
            cuda::CUDA_SUCCESS);
  const auto refused = gpu_ordinal(managed, 4096_B);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("managed"), std::string_view::npos);
}

TEST(ForeignMemory, StreamsAreWaitedForWithABound) {
  const test::FakeGpu gpu;
  EXPECT_TRUE(StreamWork::of(0, 0).value().wait(std::chrono::seconds{60}));
  static std::atomic<bool> go_on;
  go_on = false;
  const auto context = cuda::Context::of(**cuda::driver(), 0).value();
  const cuda::CurrentContext current(*context);
  const auto block = [](void*) {
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  };
  ASSERT_EQ(context->driver().cuLaunchHostFunc(nullptr, block, nullptr), cuda::CUDA_SUCCESS);
  const StreamWork work = StreamWork::of(0, 0).value();
  EXPECT_EQ(work.wait(Nanoseconds{1}).error().code, ErrorCode::timed_out);
  // Uses the given clock and sleep: a minute takes no time here.
  struct : Waiting {
    ManualClock clock;
    bool wait(const std::atomic<std::uint32_t>&, std::uint32_t, Nanoseconds timeout) override {
      clock.advance(timeout);
      return false;
    }
    void wake_all(const std::atomic<std::uint32_t>&) override {}
  } skipped;
  EXPECT_EQ(work.wait(std::chrono::minutes{1}, skipped.clock, skipped).error().code,
            ErrorCode::timed_out);
  EXPECT_GE(skipped.clock.now(), std::chrono::minutes{1});
  go_on = true;
  EXPECT_TRUE(work.wait(Nanoseconds::max()));
}

}  // namespace
}  // namespace headrace
