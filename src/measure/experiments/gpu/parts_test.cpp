// SPDX-License-Identifier: Apache-2.0
// Points that are not as gpu_test.cpp measures them: odd sizes, bytes that get lost, GPUs that lack
// something.
#include "measure/experiments/gpu/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/fake_gpu.h"

namespace headrace::experiment_gpu {
namespace {

using Prepare = Prepared (*)(const GpuSetting&, Random&);

GpuSetting on_fake(const test::FakeGpu& fake, GpuSetting setting, NodeId gpu = test::kGpu) {
  setting.gpu = GpuTarget::find(fake.machine, *fake.machine.find(gpu)).value();
  if (setting.direction == kAcross) {
    setting.other = GpuTarget::find(fake.machine, *fake.machine.find(test::kOtherGpu)).value();
  }
  setting.node = test::kDram;
  return setting;
}

// The same setting with another driver. Requires: the driver outlives all that is made with it.
GpuSetting by_driver(GpuSetting setting, const cuda::Driver& driver) {
  const GpuTarget& own = *setting.gpu;
  setting.gpu = std::shared_ptr<GpuTarget>(new GpuTarget{.machine = own.machine,
                                                         .node = own.node,
                                                         .driver = driver,
                                                         .device = own.device,
                                                         .host = own.host});
  return setting;
}

Result<session::Sample> sample_of(Prepare prepare, const GpuSetting& setting) {
  Random random(1);
  HEADRACE_TRY(const auto probe, prepare(setting, random));
  return probe->sample();
}

void expect_sample(Prepare prepare, const GpuSetting& setting) {
  const auto sample = sample_of(prepare, setting);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_GT(sample->value, 0);
}

cuda::Driver whole;  // calls of a broken driver may use it

struct Failing {
  const char* what;
  const char* gpu;
  void (*breaks)(cuda::Driver& driver);  // nullptr: the driver is whole
  Prepare prepare;
  GpuSetting setting;
  ErrorCode code;
  const char* message;
};

constexpr const char* kTwo = "memory=32M,devices=2,paradigm=ats,sms=2";
const GpuSetting kSmall{.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 64_KiB};

GpuSetting small(std::string_view direction, std::string_view memory = kPinned) {
  GpuSetting setting = kSmall;
  setting.direction = direction;
  setting.memory = memory;
  return setting;
}

const Failing kFailing[] = {
    {"copies from the GPU are lost, except of single words, which return sums", kTwo,
     [](cuda::Driver& driver) {
       driver.cuMemcpyDtoHAsync_v2 = [](void* to, cuda::CUdeviceptr from, std::size_t bytes,
                                        cuda::CUstream stream) {
         return bytes > 8 ? cuda::CUDA_SUCCESS
                          : whole.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
       };
     },
     prepare_copies, small(kToGpu), ErrorCode::io, "not what was sent"},
    {"copies to the GPU are lost", kTwo,
     [](cuda::Driver& driver) {
       driver.cuMemcpyHtoDAsync_v2 = [](cuda::CUdeviceptr, const void*, std::size_t,
                                        cuda::CUstream) { return cuda::CUDA_SUCCESS; };
     },
     prepare_copies, small(kFromGpu), ErrorCode::io, "not what was sent"},
    {"copies inside the GPU are lost", kTwo,
     [](cuda::Driver& driver) {
       driver.cuMemcpyDtoDAsync_v2 = [](cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t,
                                        cuda::CUstream) { return cuda::CUDA_SUCCESS; };
     },
     prepare_copies, small(kInside, kDevice), ErrorCode::io, "not what was sent"},
    {"one copy of a batch is lost",
     kTwo,
     [](cuda::Driver& driver) {
       static int calls;
       calls = 0;
       driver.cuMemcpyAsync = [](cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes,
                                 cuda::CUstream stream) {
         return ++calls == 8 ? cuda::CUDA_SUCCESS : whole.cuMemcpyAsync(to, from, bytes, stream);
       };
     },
     prepare_batches,
     {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 4_KiB, .count = 16},
     ErrorCode::io,
     "not all of the copies arrived"},
    {"no fragment arrives",
     kTwo,
     [](cuda::Driver& driver) {
       driver.cuMemcpyAsync = [](cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t,
                                 cuda::CUstream) { return cuda::CUDA_SUCCESS; };
     },
     prepare_fragments,
     {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 64_KiB, .count = 16},
     ErrorCode::io,
     "not what was sent"},
    {"a chain has a wrong end",
     kTwo,
     [](cuda::Driver& driver) {
       driver.cuMemPrefetchAsync_v2 = [](cuda::CUdeviceptr address, std::size_t bytes,
                                         cuda::CUmemLocation, unsigned, cuda::CUstream) {
         std::memset(reinterpret_cast<void*>(address), 0, bytes);
         return cuda::CUDA_SUCCESS;
       };
     },
     prepare_chase,
     {.by = kCpu, .memory = kManaged, .bytes = 64_KiB},
     ErrorCode::io,
     "other numbers"},
    // A kernel that writes where it may not loses the context, and all later measurements.
    {"GPUs do not reach each other",
     kTwo,
     [](cuda::Driver& driver) {
       driver.cuDeviceCanAccessPeer = [](int* can, cuda::CUdevice, cuda::CUdevice) {
         *can = 0;
         return cuda::CUDA_SUCCESS;
       };
     },
     prepare_copies,
     {.direction = kAcross, .by = kKernel, .memory = kDevice, .bytes = 64_KiB},
     ErrorCode::unsupported,
     "do not reach each other"},
    {"the driver registers no memory",
     "memory=64M,register_limit=1M",
     nullptr,
     prepare_allocation,
     {.by = kPlaced, .memory = kPinned, .bytes = 2_MiB},
     ErrorCode::exhausted,
     ""},
    {"a copy is larger than a quarter of the GPU",
     "memory=32M",
     nullptr,
     prepare_copies,
     {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 16_MiB},
     ErrorCode::exhausted,
     "a quarter"},
    {"a run of fragments is larger than that",
     "memory=8M",
     nullptr,
     prepare_fragments,
     {.direction = kToGpu, .by = kHeadrace, .memory = kPinned, .bytes = 64_KiB, .count = 1 << 10},
     ErrorCode::exhausted,
     ""},
    {"the GPU is lost", "memory=32M,lost_after=100", nullptr, prepare_copies, small(kToGpu),
     ErrorCode::io, ""},
};

TEST(GpuParts, FailInsteadOfTimingWhatDoesNotArrive) {
  for (const Failing& failing : kFailing) {
    SCOPED_TRACE(failing.what);
    const test::FakeGpu fake(failing.gpu);
    whole = **cuda::driver();
    cuda::Driver driver = whole;
    if (failing.breaks != nullptr) failing.breaks(driver);
    const auto failed =
        sample_of(failing.prepare, by_driver(on_fake(fake, failing.setting), driver));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, failing.code) << failed.error().message;
    EXPECT_NE(failed.error().message.find(failing.message), std::string::npos)
        << failed.error().message;
  }
}

TEST(GpuParts, TakeOddSizesAndMoreCopiesThanOneLaunch) {
  const test::FakeGpu fake("memory=32M,sms=2");
  GpuSetting setting = on_fake(fake, kSmall);
  setting.by = kHeadrace;
  for (const std::uint64_t count : {1, 3, 5000}) {
    for (const Bytes bytes : {Bytes{1}, Bytes{777}}) {
      setting.bytes = bytes;
      setting.count = count;
      expect_sample(prepare_fragments, setting);
    }
  }
  setting.by = kKernel;
  setting.bytes = 16_B;
  setting.count = 3000;
  expect_sample(prepare_batches, setting);
  EXPECT_TRUE(gathers(16_B));
  EXPECT_FALSE(gathers(24_B));
}

// As on an H200, whose cache keeps 32 MiB, and as much of another area.
TEST(GpuParts, WalkThroughMoreThanCachesKeep) {
  const test::FakeGpu fake("memory=4G,l2=50M,sms=2");
  static std::size_t most;
  whole = **cuda::driver();
  most = 0;
  cuda::Driver noting = whole;
  noting.cuMemAlloc_v2 = [](cuda::CUdeviceptr* address, std::size_t bytes) {
    most = std::max(most, bytes);
    return whole.cuMemAlloc_v2(address, bytes);
  };
  GpuSetting setting = by_driver(on_fake(fake, small(kInside, kDevice)), noting);
  setting.bytes = 1_MiB;
  const auto found = sample_of(prepare_copies, setting);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_GE(Bytes{most}, 200_MiB);
  EXPECT_EQ(found->details.at("l2_bytes"), 50 << 20);
}

// As on a GH200, whose memory the kernel counts as node 8. Nothing is allocated by the kernel, so
// this host needs no such node.
TEST(GpuBackendCopies, TakeMemoryOfTheDriverWhereTheGpuIsANumaNode) {
  test::FakeGpu fake("memory=32M,paradigm=ats,numa_node=8");
  std::erase_if(fake.machine.nodes, [](const Node& each) { return each.id == test::kHbm; });
  for (Node& node : fake.machine.nodes) {
    if (node.id == test::kGpu) node.id = test::kHbm;
  }
  for (Engine& engine : fake.machine.engines) {
    if (engine.home == test::kGpu) engine.home = test::kHbm;
  }
  ASSERT_TRUE(fake.machine.find(test::kHbm)->byte_addressable());
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    GpuSetting setting = on_fake(fake, small(direction), test::kHbm);
    setting.by = kHeadrace;
    expect_sample(prepare_backend, setting);
  }
}

TEST(GpuBackendCopies, NeedAnEngine) {
  test::FakeGpu fake("memory=32M");
  std::erase_if(fake.machine.engines,
                [](const Engine& each) { return each.kind == EngineKind::gpu; });
  const auto refused = sample_of(prepare_backend, on_fake(fake, kSmall));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
}

// Reports all pieces as done, and copies only the first ones.
class Idle final : public Backend {
 public:
  explicit Idle(std::uint64_t done) : done_(done) {}
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      if (submitted_++ < done_) {
        std::memcpy(piece.to.object->memory() + piece.to.offset,
                    piece.from.object->memory() + piece.from.offset, piece.from.length.value);
      }
      completion.complete(piece.tag, {});
    }
    return pieces.size();
  }

 private:
  const Capabilities capabilities_{};
  const std::uint64_t done_;
  std::uint64_t submitted_ = 0;
};

TEST(GpuBackendCopies, AreTimedOnlyWhenBothWaysAreRight) {
  std::vector<std::byte> host(1 << 12), device(1 << 12);
  const MemoryRange here(host, test::kDram), other(device, test::kHbm);
  std::vector<Piece> there, back;
  for (std::uint64_t tag = 0; tag < 4; ++tag) {
    const Extent mine{&here, tag << 10, 1_KiB}, theirs{&other, tag << 10, 1_KiB};
    there.push_back({.from = mine, .to = theirs, .tag = tag});
    back.push_back({.from = theirs, .to = mine, .tag = tag});
  }
  Random random(1);
  for (const std::uint64_t done : {8, 0, 3, 4, 7}) {
    std::ranges::fill(device, std::byte{0});
    Idle idle(done);
    const Status verified = verify_both_ways(idle, there, back, 2, host, random);
    EXPECT_EQ(verified.has_value(), done == 8) << done;
    if (!verified) {
      EXPECT_NE(verified.error().message.find("not what was sent"), std::string::npos);
      continue;
    }
    EXPECT_EQ(host, device);
    EXPECT_NE(device, std::vector<std::byte>(1 << 12)) << "what is timed is no zeros";
  }
}

}  // namespace
}  // namespace headrace::experiment_gpu
