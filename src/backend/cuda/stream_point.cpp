// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/stream_point.h"

#include <fmt/core.h>

#include "core/fail.h"

namespace headrace::cuda {
namespace {

Status check(const Context& context, CUstream stream) {
  const Driver& driver = context.driver();
  CUcontext its = nullptr;
  const CUresult asked = driver.cuStreamGetCtx(stream, &its);
  if (asked != CUDA_SUCCESS) return fail_cuda(driver, asked, "cannot wait for the stream");
  if (its != context.handle()) {
    return fail(ErrorCode::invalid,
                "the stream is of another context than the memory's, the primary one of GPU {}; "
                "give a stream of that GPU",
                context.device());
  }
  if (driver.cuStreamIsCapturing == nullptr) return {};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
      status == CU_STREAM_CAPTURE_STATUS_NONE) {
    return {};
  }
  return fail(ErrorCode::invalid,
              "the stream is being captured into a graph, where nothing can wait for it; give one "
              "that is not");
}

}  // namespace

Result<std::unique_ptr<StreamPoint>> StreamPoint::of(std::shared_ptr<const Context> context,
                                                     std::uint64_t stream) {
  const Driver& driver = context->driver();
  const auto handle = reinterpret_cast<CUstream>(stream);  // NOLINT(performance-no-int-to-ptr)
  const CurrentContext current(*context);
  if (current.result() != CUDA_SUCCESS) {
    return fail_cuda(driver, current.result(), fmt::format("cannot use GPU {}", context->device()));
  }
  HEADRACE_TRY_STATUS(check(*context, handle));
  CUevent event = nullptr;
  CUresult result = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return fail_cuda(driver, result, "cannot make an event");
  std::unique_ptr<StreamPoint> point(new StreamPoint(std::move(context), event));
  result = driver.cuEventRecord(event, handle);
  if (result != CUDA_SUCCESS) return fail_cuda(driver, result, "cannot wait for the stream");
  return point;
}

StreamPoint::~StreamPoint() {
  if (!context_->here()) return;
  const CurrentContext current(*context_);
  if (current.result() == CUDA_SUCCESS) context_->driver().cuEventDestroy_v2(event_);
}

std::optional<Status> StreamPoint::reached() const {
  const Driver& driver = context_->driver();
  const CurrentContext current(*context_);
  const CUresult pushed = current.result();
  const CUresult result = pushed == CUDA_SUCCESS ? driver.cuEventQuery(event_) : pushed;
  if (result == CUDA_SUCCESS) return Status{};
  // Any other error says nothing about the stream.
  if (!ends_context(result)) return std::nullopt;
  return fail_cuda(driver, result, "the GPU was lost while its stream was waited for");
}

}  // namespace headrace::cuda
