// SPDX-License-Identifier: Apache-2.0
// The whole fake driver of this process, and helpers for its exported functions. cuInit makes it,
// and it never ends, since threads may call it while the process exits.
//
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "support/fake_cuda/address_space.h"
#include "support/fake_cuda/context.h"
#include "support/fake_cuda/handles.h"
#include "support/fake_cuda/kernels.h"
#include "support/fake_cuda/settings.h"

namespace headrace::cuda::fake {

// The version this library was built as (versioned.cpp).
int driver_version();

class Driver {
 public:
  explicit Driver(const Settings& with);

  const Settings settings;
  std::vector<std::unique_ptr<Device>> devices;
  AddressSpace memory;
  Handles<CUcontext, Context> contexts;
  Handles<CUstream, Stream> streams;
  Handles<CUevent, Event> events;
  Handles<CUmodule, Module> modules;
  Handles<CUfunction, Function> functions;

  // Null: no device has this number.
  Device* device(CUdevice ordinal) const;
  // The stream of a handle; null: it is invalid.
  std::shared_ptr<Stream> stream(Context& current, CUstream handle);
  // Releases everything of a context.
  void forget(const Context& context);
  // Whether a call that can fail must fail now.
  bool fails();

 private:
  Mutex mutex_;
  std::uint64_t random_ GUARDED_BY(mutex_);
};

// Requires: ready() was CUDA_SUCCESS.
Driver& driver();
// Whether cuInit has succeeded in this very process, and this thread may call.
CUresult ready();
CUresult initialise();

// The contexts of this thread, the current one last.
std::vector<std::shared_ptr<Context>>& context_stack();

// The mode of this thread's calls towards graphs that other threads capture.
CUstreamCaptureMode& capture_mode();
// Whether such a graph forbids calls that allocate, free, query or wait.
bool others_capture();

// Uses this CPU time of the calling thread.
void spend(std::size_t nanoseconds);

// Marks that the thread runs a user's host function, in which no call is allowed.
void in_host_function(bool inside);

// The arguments of cuMemcpyBatchAsync. Each pointer has as many elements as the count beside it.
struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const std::size_t* sizes;
  std::size_t count;
  const CUmemcpyAttributes* attributes;
  const std::size_t* first_of_attribute;
  std::size_t attributes_count;
};
CUresult copy_batch(const Batch& batch, CUstream stream);
CUresult advise(CUdeviceptr address, std::size_t size, CUmem_advise advice, CUdevice about);
CUresult prefetch(CUdeviceptr address, std::size_t size, CUdevice to, CUstream stream);
// The device of a location; CU_DEVICE_CPU: any node of the host.
constexpr CUdevice device_of(CUmemLocation place) {
  return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU;
}

// Calls `body` with the current context. If there is none or it has failed, returns that error.
template <class Body>
CUresult in_context(Body body) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::shared_ptr<Context> current = stack.back();
  if (const CUresult failed = current->failure(); failed != CUDA_SUCCESS) return failed;
  if (const CUresult late = current->take_pending(); late != CUDA_SUCCESS) return late;
  return body(*current);
}

// As in_context, for calls that are not allowed while another thread captures a graph.
template <class Body>
CUresult in_context_alone(Body body) {
  return in_context([&](Context& current) -> CUresult {
    return others_capture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : body(current);
  });
}

// The same for calls that allocate memory: HEADRACE_FAKE_CUDA can let them fail.
template <class Body>
CUresult in_context_fallible(Body body) {
  return in_context_alone([&](Context& current) -> CUresult {
    return driver().fails() ? CUDA_ERROR_OUT_OF_MEMORY : body(current);
  });
}

// As in_context, with a stream.
template <class Body>
CUresult on_stream(CUstream handle, Body body) {
  return in_context([&](Context& current) -> CUresult {
    const std::shared_ptr<Stream> stream = driver().stream(current, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult failed = stream->context->failure(); failed != CUDA_SUCCESS) return failed;
    return body(*stream);
  });
}

}  // namespace headrace::cuda::fake

// Before each function of the interface that the library exports.
#define HEADRACE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))
