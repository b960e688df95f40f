// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "backend/cuda/engines/engines.h"
#include "headrace/buffer.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

using test::kGpu;
using test::kGpuEngine;

struct Nobody final : Completion {
  void complete(std::uint64_t, Status) noexcept override {}
};

TEST(CudaBackend, SaysWhatItDrives_AndMakesNoContextBeforeItCopies) {
  const test::FakeGpu gpu("devices=2");
  const auto backend = open_cuda(gpu.machine, {kGpuEngine, test::kOtherGpuEngine});
  ASSERT_TRUE(backend) << backend.error().message;
  const Capabilities& facts = (*backend)->capabilities();
  EXPECT_EQ(facts.name, "cuda");
  EXPECT_EQ(facts.engines, (std::vector{kGpuEngine, test::kOtherGpuEngine}));
  EXPECT_NE(facts.note.find("cuMemcpyBatchAsync_v2"), std::string::npos) << facts.note;
  EXPECT_NE(facts.note.find("emulated"), std::string::npos) << facts.note;
  EXPECT_FALSE(cuda::Context::made(**cuda::driver(), 0));
}

TEST(CudaBackend, RefusesEnginesAndPiecesThatAreNotForIt) {
  const test::FakeGpu gpu;
  EXPECT_EQ(open_cuda(gpu.machine, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(open_cuda(gpu.machine, {test::kCpuA}).error().code, ErrorCode::unsupported);
  const auto backend = open_cuda(gpu.machine, {kGpuEngine}).value();
  const auto memory = allocate(gpu.machine, 4_KiB, Placement::on(kGpu)).value();
  std::vector<std::byte> bytes(8192);
  const MemoryRange plain({bytes.data(), 4096}, test::kDram);
  const MemoryRange other({bytes.data() + 4096, 4096}, test::kDram);
  struct Elsewhere final : Object {
    Elsewhere() : Object(4_KiB, test::kDisk, nullptr) {}
  } file;
  Nobody nobody;
  const auto refusal = [&](const Extent& from, const Extent& to) {
    const Piece piece{.from = from, .to = to, .engine = kGpuEngine};
    return backend->submit({&piece, 1}, nobody).error();
  };
  EXPECT_EQ(refusal(whole(plain), whole(other)).code, ErrorCode::unsupported);
  const Error without = refusal(whole(file), whole(*memory));
  EXPECT_NE(without.message.find("storage backend"), std::string::npos) << without.message;
}

TEST(CudaBackend, NeedsADriverAndItsGpu) {
  Machine machine;
  {
    const test::FakeGpu gpu;
    machine = gpu.machine;
  }
  const ScopedVariable none("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
  EXPECT_EQ(open_cuda(machine, {kGpuEngine}).error().code, ErrorCode::absent);
  const test::FakeGpu gpu;
  machine.nodes.back().gpu->uuid = std::string(32, 'f');
  const auto other = open_cuda(machine, {kGpuEngine});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::absent);
  EXPECT_NE(other.error().message.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(CudaBackend, MachineThatIsGone_IsNotRead) {
  const test::FakeGpu gpu;
  auto machine = std::make_unique<Machine>(gpu.machine);
  const auto backend = open_cuda(*machine, {kGpuEngine}).value();
  machine.reset();
  const auto memory = allocate(gpu.machine, 64_KiB, Placement::on(kGpu)).value();
  std::vector<std::byte> bytes(64_KiB .value);
  const MemoryRange plain(bytes, test::kDram);  // goes through slots of the lane's own
  struct Done final : Completion {
    void complete(std::uint64_t, Status status) noexcept override { ok = status ? 1 : 0; }
    std::atomic<int> ok = -1;
  } done;
  const Piece piece{.from = whole(plain), .to = whole(*memory), .engine = kGpuEngine};
  ASSERT_EQ(backend->submit({&piece, 1}, done).value(), 1U);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (done.ok < 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(done.ok, 1);
}

// A microsecond goes by with each reading.
class SteppingClock final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::microseconds{++readings}; }
  mutable std::atomic<int> readings = 0;
};

TEST(CudaBackend, LooksAtAllItsEnginesWithinTheTime) {
  const test::FakeGpu gpu("devices=2,latency=50ms");
  if (!gpu.has_two()) GTEST_SKIP() << test::kOneGpu;
  const SteppingClock clock;
  Placement near = Placement::on(test::kDram);
  near.pin = true;
  const auto pinned = allocate(gpu.machine, 128_KiB, near).value();
  const auto first = allocate(gpu.machine, 64_KiB, Placement::on(kGpu)).value();
  const auto second = allocate(gpu.machine, 64_KiB, Placement::on(test::kOtherGpu)).value();
  Nobody nobody;
  const auto backend =
      open_cuda(gpu.machine, {kGpuEngine, test::kOtherGpuEngine}, {.clock = &clock}).value();
  const Piece pieces[] = {
      {.from = whole(*pinned).part(0, 64_KiB), .to = whole(*first), .engine = kGpuEngine},
      {.from = whole(*pinned).part(64 << 10, 64_KiB),
       .to = whole(*second),
       .engine = test::kOtherGpuEngine}};
  ASSERT_EQ(backend->submit(pieces, nobody).value_or(0), 2U);
  const int before = clock.readings;
  EXPECT_EQ(backend->look(std::chrono::microseconds{40}).found, 0U);
  EXPECT_GE(clock.readings - before, 40);
  EXPECT_LT(clock.readings - before, 60);
}

}  // namespace
}  // namespace headrace
