// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/gpu/gpu_session.h"

#include <chrono>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"

namespace headrace {

using namespace cuda;

Result<std::unique_ptr<GpuSession>> GpuSession::open(const Driver& driver, const Device& device) {
  HEADRACE_TRY(auto context, Context::of(driver, device.ordinal));
  std::unique_ptr<GpuSession> session(new GpuSession(std::move(context)));
  HEADRACE_TRY_STATUS(session->ok(session->current_->result(), "cannot use the GPU"));
  HEADRACE_TRY(session->module_, load_kernels(driver));
  return session;
}

GpuSession::GpuSession(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  current_.emplace(*context_);
}

GpuSession::~GpuSession() {
  if (stuck_) {
    // Freeing would wait for the kernel.
    current_.reset();
    abandon(std::move(context_));
    return;
  }
  for (CUevent event : events_) driver().cuEventDestroy_v2(event);
  for (CUstream stream : streams_) driver().cuStreamDestroy_v2(stream);
  for (CUdeviceptr word : words_) driver().cuMemFree_v2(word);
  if (module_ != nullptr) driver().cuModuleUnload(module_);
}

Result<int> GpuSession::attribute(CUdevice_attribute what) const {
  int value = 0;
  HEADRACE_TRY_STATUS(ok(driver().cuDeviceGetAttribute(&value, what, device()),
                         "cannot ask for an attribute of the GPU"));
  return value;
}

Result<Bytes> GpuSession::free_memory() const {
  std::size_t free = 0, total = 0;
  HEADRACE_TRY_STATUS(
      ok(driver().cuMemGetInfo_v2(&free, &total), "cannot ask what the GPU has free"));
  return Bytes{free};
}

Result<CUfunction> GpuSession::kernel(const char* name) const {
  CUfunction function = nullptr;
  HEADRACE_TRY_STATUS(ok(driver().cuModuleGetFunction(&function, module_, name), "no such kernel"));
  return function;
}

Result<std::optional<unsigned>> GpuSession::resident_blocks(CUfunction kernel,
                                                            unsigned threads) const {
  if (driver().cuOccupancyMaxActiveBlocksPerMultiprocessor == nullptr) return std::nullopt;
  int blocks = 0;
  HEADRACE_TRY_STATUS(ok(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                             &blocks, kernel, static_cast<int>(threads), 0),
                         "cannot ask how many blocks run at once"));
  return static_cast<unsigned>(blocks);
}

Result<CUstream> GpuSession::stream() {
  CUstream stream = nullptr;
  HEADRACE_TRY_STATUS(
      ok(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cannot make a stream"));
  streams_.push_back(stream);
  return stream;
}

Result<CUevent> GpuSession::event() {
  CUevent event = nullptr;
  HEADRACE_TRY_STATUS(ok(driver().cuEventCreate(&event, CU_EVENT_DEFAULT), "cannot make an event"));
  events_.push_back(event);
  return event;
}

Result<CUdeviceptr> GpuSession::word() {
  CUdeviceptr word = 0;
  HEADRACE_TRY_STATUS(ok(driver().cuMemAlloc_v2(&word, 4), "cannot allocate on the GPU"));
  words_.push_back(word);
  return word;
}

Status GpuSession::ok(CUresult result, std::string_view what) const {
  if (result == CUDA_SUCCESS) return {};
  return fail_cuda(driver(), result, what);
}

Status GpuSession::wait(CUevent event, Nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    const CUresult result = driver().cuEventQuery(event);
    if (result != CUDA_ERROR_NOT_READY) return ok(result, "the GPU failed");
    if (std::chrono::steady_clock::now() > end) {
      stuck_ = true;
      return fail(ErrorCode::timed_out,
                  "the GPU has not ended in {:.0f} s; look at nvidia-smi and the kernel's log",
                  seconds(limit));
    }
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

}  // namespace headrace
