// SPDX-License-Identifier: Apache-2.0
#include "memory/device/device_memory.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "core/fail.h"
#include "core/fork.h"

namespace headrace {
namespace {

Unexpected too_little(const cuda::Context& context, const Node& gpu, Bytes bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  context.driver().cuMemGetInfo_v2(&free, &total);
  if (free >= bytes.value) {
    return fail(ErrorCode::exhausted,
                "the driver has no {} for {}, though {} of {} are free; ask for less, or try again",
                to_string(bytes), gpu.name, to_string(Bytes{free}), to_string(Bytes{total}));
  }
  return fail(ErrorCode::exhausted, "{} has {} free of {}, not {}; ask for less", gpu.name,
              to_string(Bytes{free}), to_string(Bytes{total}), to_string(bytes));
}

// Far longer than zeroing all memory of a GPU takes, unless other work keeps the GPU busy.
constexpr std::chrono::seconds kZeroLimit{30};

// Returns NOT_READY while zeroing is still running. Uses a stream of its own, because the default
// stream waits for all other work in this context.
cuda::CUresult zero(const cuda::Driver& driver, cuda::CUdeviceptr address, Bytes bytes) {
  cuda::CUstream stream = nullptr;
  cuda::CUresult result = driver.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING);
  if (result != cuda::CUDA_SUCCESS) return result;
  result = driver.cuMemsetD8Async(address, 0, bytes.value, stream);
  const auto end = std::chrono::steady_clock::now() + kZeroLimit;
  for (bool given = result == cuda::CUDA_SUCCESS; given;) {
    result = driver.cuStreamQuery(stream);
    // An error that does not end the context says nothing about the running memset.
    if (result == cuda::CUDA_SUCCESS || cuda::ends_context(result)) break;
    result = cuda::CUDA_ERROR_NOT_READY;
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  driver.cuStreamDestroy_v2(stream);  // does not wait
  return result;
}

}  // namespace

Result<std::shared_ptr<const DeviceMemory>> DeviceMemory::allocate(const Node& gpu, Bytes bytes) {
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  if (!gpu.gpu) {
    return fail(ErrorCode::absent, "{} was not seen by a CUDA driver; see headrace doctor",
                gpu.name);
  }
  HEADRACE_TRY(const cuda::Device device,
               cuda::find_device(*driver, gpu.gpu->uuid, gpu.gpu->pci, gpu.name));
  HEADRACE_TRY(auto context, cuda::Context::of(*driver, device.ordinal));
  const cuda::CurrentContext current(*context);
  cuda::CUdeviceptr address = 0;
  cuda::CUresult result = current.result();
  if (result == cuda::CUDA_SUCCESS) result = driver->cuMemAlloc_v2(&address, bytes.value);
  if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY) return too_little(*context, gpu, bytes);
  if (result != cuda::CUDA_SUCCESS) {
    return cuda::fail_cuda(*driver, result, fmt::format("cannot allocate on {}", gpu.name));
  }
  std::shared_ptr<const DeviceMemory> memory(new DeviceMemory(std::move(context), address, bytes));
  result = zero(*driver, address, bytes);
  if (result == cuda::CUDA_ERROR_NOT_READY) {
    abandon(std::move(memory));  // freeing it would wait
    return fail(ErrorCode::timed_out,
                "{} has not zeroed {} in {} s; look at nvidia-smi for what keeps it busy, and at "
                "dmesg for Xid",
                gpu.name, to_string(bytes), kZeroLimit.count());
  }
  if (result != cuda::CUDA_SUCCESS) {
    return cuda::fail_cuda(*driver, result, fmt::format("cannot zero memory of {}", gpu.name));
  }
  return memory;
}

// Asks with a call that costs nothing: a failed context answers every call with its error.
std::optional<Error> DeviceMemory::loss_of(const Node& gpu) {
  const auto driver = cuda::driver();
  if (!driver || !gpu.gpu) return std::nullopt;
  const auto device = cuda::find_device(**driver, gpu.gpu->uuid, gpu.gpu->pci, gpu.name);
  if (!device) return std::nullopt;
  const auto context = cuda::Context::of(**driver, device->ordinal);
  if (!context) return std::nullopt;
  const cuda::CurrentContext current(**context);
  cuda::CUresult result = current.result();
  std::size_t free = 0;
  std::size_t total = 0;
  if (result == cuda::CUDA_SUCCESS) result = (*driver)->cuMemGetInfo_v2(&free, &total);
  if (!cuda::ends_context(result)) return std::nullopt;
  Error error = cuda::fail_cuda(**driver, result, fmt::format("{} is lost", gpu.name)).error();
  error.code = ErrorCode::io;
  error.message += "; end the process, and look at dmesg for Xid";
  return error;
}

DeviceMemory::~DeviceMemory() {
  if (!context_->here()) return;
  const cuda::CurrentContext current(*context_);
  if (current.result() == cuda::CUDA_SUCCESS) context_->driver().cuMemFree_v2(address_);
}

}  // namespace headrace
