// SPDX-License-Identifier: Apache-2.0
#include "headrace/gpu/memory.h"

#include <atomic>
#include <chrono>
#include <optional>

#include "backend/cuda/cuda.h"
#include "core/fail.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"

namespace headrace {
namespace {

constexpr Nanoseconds kFirstLook = std::chrono::microseconds{20};
constexpr Nanoseconds kLastLook = std::chrono::milliseconds{1};

// nullopt: not the memory of a GPU. Requires: a current context.
std::optional<int> gpu_at(const cuda::Driver& driver, cuda::CUdeviceptr address) {
  unsigned type = 0;
  int ordinal = 0;
  const bool known =
      driver.cuPointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
          cuda::CUDA_SUCCESS &&
      driver.cuPointerGetAttribute(&ordinal, cuda::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
          cuda::CUDA_SUCCESS;
  if (!known || type != cuda::CU_MEMORYTYPE_DEVICE) return std::nullopt;
  return ordinal;
}

bool is_managed(const cuda::Driver& driver, cuda::CUdeviceptr address) {
  unsigned managed = 0;
  return driver.cuPointerGetAttribute(&managed, cuda::CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
             cuda::CUDA_SUCCESS &&
         managed != 0;
}

// Asks in any context that exists: a process with GPU memory has one.
Result<int> find_gpu(const cuda::Driver& driver, cuda::CUdeviceptr address, Bytes bytes) {
  HEADRACE_TRY(const auto devices, cuda::find_devices(driver));
  for (const cuda::Device& device : devices) {
    if (driver.cuDevicePrimaryCtxGetState != nullptr &&
        !cuda::Context::made(driver, device.ordinal)) {
      continue;
    }
    HEADRACE_TRY(const auto context, cuda::Context::of(driver, device.ordinal));
    const cuda::CurrentContext current(*context);
    if (current.result() != cuda::CUDA_SUCCESS) continue;
    const auto first = gpu_at(driver, address);
    const auto last = gpu_at(driver, address + bytes.value - 1);
    if (!first || first != last) break;
    if (is_managed(driver, address)) {
      return fail(ErrorCode::invalid,
                  "managed memory, whose pages have no place of their own; give memory of a GPU");
    }
    return *first;
  }
  return fail(ErrorCode::invalid,
              "the {} at {:#x} are no memory of one GPU that its driver knows; give an array that "
              "is whole and not freed",
              to_string(bytes), address);
}

Result<NodeId> node_of(const Machine& machine, const cuda::Driver& driver, int ordinal) {
  for (const Node& node : machine.nodes) {
    if (!node.gpu) continue;
    const auto device = cuda::find_device(driver, node.gpu->uuid, node.gpu->pci, node.name);
    if (device && device->ordinal == ordinal) return node.id;
  }
  return fail(ErrorCode::absent,
              "the machine has not GPU {} of this process; discover it with the GPU's driver",
              ordinal);
}

}  // namespace

Result<int> gpu_ordinal(std::uint64_t device_address, Bytes bytes) {
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  if (bytes == 0_B) return fail(ErrorCode::invalid, "no bytes of a GPU; give some");
  return find_gpu(*driver, device_address, bytes);
}

Result<NodeId> gpu_node(const Machine& machine, std::uint64_t device_address, Bytes bytes) {
  HEADRACE_TRY(const int ordinal, gpu_ordinal(device_address, bytes));
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  return node_of(machine, *driver, ordinal);
}

Result<StreamWork> StreamWork::of(int gpu, std::uint64_t stream) {
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  HEADRACE_TRY(auto context, cuda::Context::of(*driver, gpu));
  HEADRACE_TRY(auto end, cuda::StreamPoint::of(std::move(context), stream));
  return StreamWork(std::move(end));
}

Status StreamWork::wait(Nanoseconds timeout, const Clock& clock, Waiting& waiting) const {
  Patience patience(clock, waiting, timeout);
  Backoff naps(kFirstLook, kLastLook);
  const std::atomic<std::uint32_t> never{0};
  for (;;) {
    if (auto reached = end_->reached()) return *std::move(reached);
    if (patience.over()) break;
    patience.sleep(never, 0, naps.next());
  }
  return fail(ErrorCode::timed_out,
              "the stream has not yet done what it was given; it goes on, so wait again");
}

}  // namespace headrace
