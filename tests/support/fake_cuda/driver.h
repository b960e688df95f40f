// SPDX-License-Identifier: Apache-2.0
// The whole fake driver of this process, and what the functions it exports have in common. It is
// made by cuInit and never ends: threads may still call it while the process exits.
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
#include "support/fake_cuda/launch/module.h"
#include "support/fake_cuda/managed/managed.h"
#include "support/fake_cuda/settings.h"

namespace headrace::cuda::fake {

// The version this library was built as (versioned.cpp).
int driver_version();

class Driver {
 public:
  explicit Driver(const Settings& with);

  const Settings settings;
  std::vector<std::unique_ptr<Device>> devices;
  ManagedMemory managed;  // before the memory, whose ranges use it
  AddressSpace memory;
  Handles<CUcontext, Context> contexts;
  Handles<CUstream, BoundStream> streams;
  Handles<CUevent, Event> events;
  Handles<CUmodule, Module> modules;
  Handles<CUfunction, Function> functions;

  // Null: there is none of this number.
  Device* device(CUdevice ordinal) const;
  // The stream that a call means by a handle; null: it means none.
  std::shared_ptr<BoundStream> stream(Context& current, CUstream handle);
  // Everything of a context ends.
  void forget(const Context& context);
  // Whether a call that can fail is to fail now.
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

// How calls of this thread go with graphs that others capture.
CUstreamCaptureMode& capture_mode();
// Whether such a graph forbids what allocates, frees, asks or waits.
bool others_capture();

// Uses so much time of the calling thread.
void spend(std::size_t nanoseconds);

// Marks its thread as one that runs functions of users, in which no call is allowed.
void in_host_function(bool inside);

// Calls `body` with the current context; answers in its place where there is none, or a failed one.
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

// As in_context, for calls that a thread may not make while another captures a graph.
template <class Body>
CUresult in_context_alone(Body body) {
  return in_context([&](Context& current) -> CUresult {
    return others_capture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : body(current);
  });
}

// The same for calls that need memory of some kind: those that HEADRACE_FAKE_CUDA lets fail.
template <class Body>
CUresult in_context_fallible(Body body) {
  return in_context_alone([&](Context& current) -> CUresult {
    return driver().fails() ? CUDA_ERROR_OUT_OF_MEMORY : body(current);
  });
}

// As in_context, with a stream of it besides.
template <class Body>
CUresult on_stream(CUstream handle, Body body) {
  return in_context([&](Context& current) -> CUresult {
    const std::shared_ptr<BoundStream> stream = driver().stream(current, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult failed = stream->context->failure(); failed != CUDA_SUCCESS) return failed;
    return body(current, *stream);
  });
}

}  // namespace headrace::cuda::fake

// Before each function of the interface that the library exports.
#define HEADRACE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))
