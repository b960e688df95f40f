// SPDX-License-Identifier: Apache-2.0
// A machine with software GPUs (fake_cuda), and direct access to their memory, around the library.
// Single-thread: it changes the environment.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "core/check.h"
#include "headrace/object.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/machines.h"

namespace headrace::test {

inline constexpr NodeId kGpu{kFirstGpuNode};
inline constexpr NodeId kOtherGpu{kFirstGpuNode + 1};
inline constexpr EngineId kGpuEngine{3};
inline constexpr EngineId kOtherGpuEngine{4};

// small_machine() with the GPUs that the present driver shows.
inline Machine gpu_machine() {
  Machine machine = small_machine();
  const auto driver = cuda::driver();
  CHECK(driver.has_value());
  const auto devices = cuda::find_devices(**driver);
  CHECK(devices.has_value());
  for (const cuda::Device& device : *devices) {
    const NodeId id{kFirstGpuNode + static_cast<std::uint32_t>(device.ordinal)};
    machine.nodes.push_back({.id = id,
                             .kind = NodeKind::gpu,
                             .reason = "test",
                             .name = fmt::format("gpu {}", device.ordinal),
                             .capacity = device.capacity,
                             .gpu = GpuAttributes{.pci = device.pci,
                                                  .uuid = device.uuid,
                                                  .copy_engines = device.copy_engines,
                                                  .host = kDram,
                                                  .emulated = device.emulated}});
    machine.engines.push_back({.id = EngineId{static_cast<std::uint32_t>(machine.engines.size())},
                               .kind = EngineKind::gpu,
                               .name = fmt::format("gpu{}", device.ordinal),
                               .home = id,
                               .reason = "test"});
  }
  return machine;
}

// The fake driver until the end of the scope, and its machine.
struct FakeGpu {
  explicit FakeGpu(const std::string& settings = "", const std::string& version = "")
      : library(settings, version), machine(gpu_machine()) {}
  // Where a real driver shows one GPU, what wants two is skipped (kOneGpu).
  bool has_two() const { return machine.find(kOtherGpu) != nullptr; }
  FakeCudaLibrary library;
  Machine machine;
};

inline constexpr const char* kOneGpu = "wants two GPUs, and HEADRACE_TEST_LIBCUDA shows one";

// Copies between host memory and a GPU's; any GPU of the driver reaches all of it.
inline bool copy_with_gpu(std::uint64_t device, void* host, std::size_t bytes, bool to_gpu) {
  const cuda::Driver& driver = **cuda::driver();
  const auto context = cuda::Context::of(driver, 0);
  CHECK(context.has_value());
  const cuda::CurrentContext current(**context);
  const cuda::CUresult result = to_gpu ? driver.cuMemcpyHtoDAsync_v2(device, host, bytes, nullptr)
                                       : driver.cuMemcpyDtoHAsync_v2(host, device, bytes, nullptr);
  return result == cuda::CUDA_SUCCESS && driver.cuStreamSynchronize(nullptr) == cuda::CUDA_SUCCESS;
}

inline std::vector<std::byte> read_gpu(const Object& object, std::uint64_t offset,
                                       std::size_t bytes) {
  std::vector<std::byte> read(bytes);
  CHECK(copy_with_gpu(*object.device_address() + offset, read.data(), bytes, false));
  return read;
}

inline void write_gpu(const Object& object, std::uint64_t offset,
                      std::span<const std::byte> bytes) {
  CHECK(copy_with_gpu(*object.device_address() + offset, const_cast<std::byte*>(bytes.data()),
                      bytes.size(), true));
}

}  // namespace headrace::test
