// SPDX-License-Identifier: Apache-2.0
// The functions for streams and events.
#include <chrono>
#include <utility>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

// The same for calls that query or wait.
template <class Body>
CUresult on_asked_stream(CUstream handle, Body body) {
  return on_stream(handle, [&](Stream& its) -> CUresult {
    return others_capture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : body(its);
  });
}

// Calls `body` with the event and its mark, which is null if the event was never recorded.
template <class Body>
CUresult on_event(CUevent handle, Body body) {
  return in_context_alone([&](Context&) -> CUresult {
    const auto event = driver().events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(*event, event->recorded());
  });
}

}  // namespace

HEADRACE_FAKE_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return in_context_fallible([&](Context& current) -> CUresult {
    if (stream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    auto made = current.add_stream();
    if (made == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *stream = driver().streams.add(std::move(made));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  return in_context([&](Context&) -> CUresult {
    return driver().streams.remove(stream) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return on_asked_stream(stream, [](Stream& its) { return its.last()->wait(); });
}

HEADRACE_FAKE_EXPORT CUresult cuStreamQuery(CUstream stream) {
  return on_asked_stream(stream, [](Stream& its) { return its.last()->query(); });
}

HEADRACE_FAKE_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event,
                                                unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(stream, [&](Stream& its) -> CUresult {
    const auto found = driver().events.find(event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (auto mark = found->recorded(); mark != nullptr) {
      its.enqueue([] { return CUDA_SUCCESS; }, std::move(mark));
    }
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = its.context->handle();
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function,
                                               void* user_data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(stream, [&](Stream& its) {
    spend(driver().settings.callback_cost);
    its.enqueue([function, user_data] {
      in_host_function(true);
      function(user_data);
      in_host_function(false);
      return CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
}

// No stream of the fake is ever captured.
HEADRACE_FAKE_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return on_stream(stream, [&](Stream&) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, capture_mode());
  return CUDA_SUCCESS;
}

HEADRACE_FAKE_EXPORT CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return in_context_fallible([&](Context& current) -> CUresult {
    if (event == nullptr || flags > CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_shared<Event>();
    made->context = current.shared_from_this();
    made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *event = driver().events.add(std::move(made));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    const auto found = driver().events.find(event);
    if (found == nullptr || found->context != its.context) return CUDA_ERROR_INVALID_HANDLE;
    auto mark = its.enqueue([] { return CUDA_SUCCESS; });
    const MutexLock lock(found->mutex);
    found->mark = std::move(mark);
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuEventQuery(CUevent event) {
  return on_event(event, [](Event&, const std::shared_ptr<Mark>& mark) {
    return mark == nullptr ? CUDA_SUCCESS : mark->query();
  });
}

HEADRACE_FAKE_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_event(start, [&](Event& first, const std::shared_ptr<Mark>& begun) {
    return on_event(end, [&](Event& second, const std::shared_ptr<Mark>& ended) -> CUresult {
      const bool timed = first.timed && second.timed;
      if (!timed || begun == nullptr || ended == nullptr || first.context != second.context) {
        return CUDA_ERROR_INVALID_HANDLE;
      }
      if (begun->query() == CUDA_ERROR_NOT_READY || ended->query() == CUDA_ERROR_NOT_READY) {
        return CUDA_ERROR_NOT_READY;
      }
      const std::chrono::duration<float, std::milli> time = ended->when() - begun->when();
      *milliseconds = time.count();
      return CUDA_SUCCESS;
    });
  });
}

HEADRACE_FAKE_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  return in_context([&](Context&) {
    return driver().events.remove(event) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

}  // namespace headrace::cuda::fake
