// SPDX-License-Identifier: Apache-2.0
#include "memory/device/device_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "headrace/buffer.h"
#include "headrace/heap.h"
#include "tests/support/child.h"
#include "tests/support/expect.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

using test::expect_refused;

using test::kGpu;

TEST(DeviceMemory, IsZeroedAndReachedByItsAddress) {
  const test::FakeGpu gpu;
  const auto buffer = allocate(gpu.machine, 3_MiB, Placement::on(NodeKind::gpu));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ((*buffer)->size(), 3_MiB);
  EXPECT_EQ((*buffer)->node(), kGpu);
  EXPECT_EQ((*buffer)->memory(), nullptr);
  EXPECT_TRUE((*buffer)->bytes().empty());
  ASSERT_TRUE((*buffer)->device_address());
  EXPECT_EQ(test::read_gpu(**buffer, 1 << 20, 100), std::vector<std::byte>(100));
  const std::vector<std::byte> written(100, std::byte{3});
  test::write_gpu(**buffer, 1 << 20, written);
  EXPECT_EQ(test::read_gpu(**buffer, 1 << 20, 100), written);
}

// Other work in the default stream may never end.
TEST(DeviceMemory, BusyDefaultStream_IsNotWaitedFor) {
  const test::FakeGpu gpu;
  const auto context = cuda::Context::of(**cuda::driver(), 0).value();
  const cuda::CurrentContext current(*context);
  static std::atomic<int> step;  // 1: it may return; 2: it has returned
  step = 0;
  const auto block = [](void*) {
    for (int i = 0; i < 10000 && step == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    step = 2;
  };
  ASSERT_EQ(context->driver().cuLaunchHostFunc(nullptr, block, nullptr), cuda::CUDA_SUCCESS);
  const auto buffer = allocate(gpu.machine, 1_MiB, Placement::on(kGpu));
  EXPECT_EQ(step, 0);
  step = 1;
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(test::read_gpu(**buffer, 0, 100), std::vector<std::byte>(100));
}

// As torch.cuda.graph() does in another thread.
TEST(DeviceMemory, GraphCaptureInAnotherThread_IsAllocatedAndReleased) {
  const test::FakeGpu gpu("memory=16M,capturing=1");
  for (int i = 0; i < 4; ++i) {
    const auto buffer = allocate(gpu.machine, 10_MiB, Placement::on(kGpu));
    ASSERT_TRUE(buffer) << "the one before was not given back: " << buffer.error().message;
  }
  const cuda::Driver& driver = **cuda::driver();
  cuda::CUstreamCaptureMode mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
  EXPECT_EQ(driver.cuThreadExchangeStreamCaptureMode(&mode), cuda::CUDA_SUCCESS);
  EXPECT_EQ(mode, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's mode is what it was";
}

TEST(DeviceMemory, IsOnTheGpuThatIsNamed) {
  const test::FakeGpu gpu("devices=2");
  const auto parsed = Placement::parse(gpu.machine, "2001");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto second = allocate(gpu.machine, 1_MiB, *parsed);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->node(), test::kOtherGpu);
  const auto any = Placement::parse(gpu.machine, "gpu");
  ASSERT_TRUE(any) << any.error().message;
  const auto first = allocate(gpu.machine, 1_MiB, *any);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ((*first)->node(), kGpu);
}

TEST(DeviceMemory, UnsupportedAlignmentOrPin_IsRefused) {
  const test::FakeGpu gpu("memory=64M");
  const auto aligned = allocate(gpu.machine, 40_MiB, Placement::on(kGpu), 256_B);
  ASSERT_TRUE(aligned) << aligned.error().message;
  EXPECT_EQ(*(*aligned)->device_address() % 256, 0U);
  expect_refused(allocate(gpu.machine, 4_KiB, Placement::on(kGpu), 1024_GiB),
                 ErrorCode::unsupported, "ask for at most 256 B");
  Placement pinned = Placement::on(kGpu);
  pinned.pin = true;
  expect_refused(allocate(gpu.machine, 4_KiB, pinned), ErrorCode::unsupported, "is not pinned");
}

TEST(DeviceMemory, IsGivenBack) {
  const test::FakeGpu gpu("memory=64M");
  for (int i = 0; i < 8; ++i) {
    const auto buffer = allocate(gpu.machine, 40_MiB, Placement::on(kGpu));
    ASSERT_TRUE(buffer) << buffer.error().message;
  }
}

TEST(DeviceMemory, SaysWhatIsFree) {
  const test::FakeGpu gpu("memory=64M");
  const auto none = allocate(gpu.machine, 65_MiB, Placement::on(kGpu));
  expect_refused(none, ErrorCode::exhausted, "free of 64 MiB, not 65 MiB; ask for less");
}

TEST(DeviceMemory, RefusalDespiteFreeMemory_DoesNotClaimTooLittle) {
  const test::FakeGpu gpu("memory=64M,fail=1");
  const auto none = allocate(gpu.machine, 1_MiB, Placement::on(kGpu));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::exhausted);
  EXPECT_TRUE(none.error().message.starts_with("the driver has no 1 MiB for "))
      << none.error().message;
}

TEST(DeviceMemory, NeedsItsDriver) {
  test::FakeGpu gpu;
  {
    const ScopedVariable none("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
    EXPECT_EQ(allocate(gpu.machine, 1_MiB, Placement::on(kGpu)).error().code, ErrorCode::absent);
  }
  gpu.machine.nodes.back().gpu.reset();
  EXPECT_EQ(allocate(gpu.machine, 1_MiB, Placement::on(kGpu)).error().code, ErrorCode::absent);
}

TEST(DeviceMemory, IsNothingForCpusAndSaysWhy) {
  const test::FakeGpu gpu;
  const auto heap = Heap::open(gpu.machine, Placement::on(kGpu));
  ASSERT_FALSE(heap);
  EXPECT_EQ(heap.error().code, ErrorCode::unsupported);
  const auto for_cpus = allocate_for_cpus(gpu.machine, 1_MiB, Placement::on(NodeKind::gpu));
  ASSERT_FALSE(for_cpus);
  EXPECT_EQ(for_cpus.error().code, ErrorCode::unsupported);
  const auto nodes = resolve(gpu.machine, Placement::on(NodeKind::gpu));
  ASSERT_FALSE(nodes);
  EXPECT_EQ(nodes.error().message,
            "node 2000 is gpu, which CPUs do not reach: it holds whole buffers that copies fill; "
            "use another");
  auto buffer = allocate(gpu.machine, 1_MiB, Placement::on(kGpu)).value();
  EXPECT_EQ(relocate(gpu.machine, *buffer, Placement::on(test::kDram)).error().code,
            ErrorCode::unsupported);
}

TEST(DeviceMemory, OfANumaNodeIsMemoryLikeAnyOther) {
  Machine machine = test::small_machine();
  machine.nodes.front().kind = NodeKind::gpu;  // as on a GH200
  EXPECT_TRUE(machine.nodes.front().byte_addressable());
  const auto buffer = allocate(machine, 1_MiB, Placement::on(NodeKind::gpu));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ((*buffer)->bytes().size(), (1_MiB).value);
}

TEST(DeviceMemory, IsLeftAloneInAChild) {
  const test::FakeGpu gpu;
  auto buffer = allocate(gpu.machine, 1_MiB, Placement::on(kGpu)).value();
  EXPECT_EQ(test::status_of_child([&] {
              buffer.reset();
              const auto none = allocate(gpu.machine, 1_MiB, Placement::on(kGpu));
              return !none && none.error().code == ErrorCode::unsupported;
            }),
            0);
  EXPECT_EQ(test::read_gpu(*buffer, 0, 10), std::vector<std::byte>(10));
}

}  // namespace
}  // namespace headrace
