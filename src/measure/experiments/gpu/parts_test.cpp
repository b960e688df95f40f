// SPDX-License-Identifier: Apache-2.0
// Points that are not as gpu_test.cpp measures them: odd sizes, bytes that get lost, GPUs that lack
// something.
#include "measure/experiments/gpu/parts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

cuda::Driver whole;  // calls of a broken driver may use it

// Except of single words, which return sums.
void lose_copies_from_gpu(cuda::Driver& driver) {
  driver.cuMemcpyDtoHAsync_v2 = [](void* to, cuda::CUdeviceptr from, std::size_t bytes,
                                   cuda::CUstream stream) {
    return bytes > 8 ? cuda::CUDA_SUCCESS : whole.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
  };
}

void lose_copies_to_gpu(cuda::Driver& driver) {
  driver.cuMemcpyHtoDAsync_v2 = [](cuda::CUdeviceptr, const void*, std::size_t, cuda::CUstream) {
    return cuda::CUDA_SUCCESS;
  };
}

void lose_copies_inside(cuda::Driver& driver) {
  driver.cuMemcpyDtoDAsync_v2 = [](cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t,
                                   cuda::CUstream) { return cuda::CUDA_SUCCESS; };
}

void lose_one_copy(cuda::Driver& driver) {
  static int calls;
  calls = 0;
  driver.cuMemcpyAsync = [](cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes,
                            cuda::CUstream stream) {
    return ++calls == 8 ? cuda::CUDA_SUCCESS : whole.cuMemcpyAsync(to, from, bytes, stream);
  };
}

void lose_all_copies(cuda::Driver& driver) {
  driver.cuMemcpyAsync = [](cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t, cuda::CUstream) {
    return cuda::CUDA_SUCCESS;
  };
}

void clear_instead_of_prefetching(cuda::Driver& driver) {
  driver.cuMemPrefetchAsync_v2 = [](cuda::CUdeviceptr address, std::size_t bytes,
                                    cuda::CUmemLocation, unsigned, cuda::CUstream) {
    std::memset(reinterpret_cast<void*>(address), 0, bytes);
    return cuda::CUDA_SUCCESS;
  };
}

void keep_apart(cuda::Driver& driver) {
  driver.cuDeviceCanAccessPeer = [](int* can, cuda::CUdevice, cuda::CUdevice) {
    *can = 0;
    return cuda::CUDA_SUCCESS;
  };
}

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

GpuSetting many(std::string_view by, Bytes bytes, std::uint64_t count) {
  return {.direction = kToGpu, .by = by, .memory = kPinned, .bytes = bytes, .count = count};
}

const Failing kFailing[] = {
    {"copies from the GPU are lost", kTwo, lose_copies_from_gpu, prepare_copies, small(kToGpu),
     ErrorCode::io, "not what was sent"},
    {"copies to the GPU are lost", kTwo, lose_copies_to_gpu, prepare_copies, small(kFromGpu),
     ErrorCode::io, "not what was sent"},
    {"copies inside the GPU are lost", kTwo, lose_copies_inside, prepare_copies,
     small(kInside, kDevice), ErrorCode::io, "not what was sent"},
    {"one copy of a batch is lost", kTwo, lose_one_copy, prepare_batches, many(kEngine, 4_KiB, 16),
     ErrorCode::io, "not all of the copies arrived"},
    {"no fragment arrives", kTwo, lose_all_copies, prepare_fragments, many(kEngine, 64_KiB, 16),
     ErrorCode::io, "not what was sent"},
    {"a chain has a wrong end",
     kTwo,
     clear_instead_of_prefetching,
     prepare_chase,
     {.by = kCpu, .memory = kManaged, .bytes = 64_KiB},
     ErrorCode::io,
     "other numbers"},
    // A kernel that writes where it may not loses the context, and all later measurements.
    {"GPUs do not reach each other",
     kTwo,
     keep_apart,
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
    {"a copy is larger than a quarter of the GPU", "memory=32M", nullptr, prepare_copies,
     many(kEngine, 16_MiB, 1), ErrorCode::exhausted, "a quarter"},
    {"a run of fragments is larger than that", "memory=8M", nullptr, prepare_fragments,
     many(kHeadrace, 64_KiB, 1 << 10), ErrorCode::exhausted, ""},
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

}  // namespace
}  // namespace headrace::experiment_gpu
