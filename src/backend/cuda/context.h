// SPDX-License-Identifier: Apache-2.0
// The primary context of a GPU, and its use for one call. All libraries of a process share this
// context (PyTorch and CuPy too).
//
// Each use restores the thread's own current context, and the mode of its calls towards graphs that
// other threads capture. Thread-safe.
#pragma once

#include <memory>

#include "backend/cuda/driver.h"
#include "core/fork.h"

namespace headrace::cuda {

class Context {
 public:
  // The primary context of a GPU, retained until the last pointer to it is released. Errors:
  // absent: no such GPU; exhausted: no memory on the GPU for a context.
  static Result<std::shared_ptr<const Context>> of(const Driver& driver, CUdevice device);
  // Whether anything in this process has made the GPU's context; false if the driver does not say.
  static bool made(const Driver& driver, CUdevice device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  CUcontext handle() const { return handle_; }
  // False in a child made by fork().
  bool here() const { return origin_.here(); }

 private:
  Context(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {}

  const Origin origin_;
  const Driver& driver_;
  const CUdevice device_;
  CUcontext handle_ = nullptr;  // set once, before other threads see it
};

// Lets the GPUs of two contexts reach each other's memory, if the hardware can. Returns true if
// both can. The setting stays, for all users of these contexts.
bool enable_peer_access(const Context& one, const Context& other);

// Makes a context the calling thread's current one for a scope. No call in the scope breaks a graph
// that another thread captures. PyTorch captures in global mode: there a call of any thread that
// allocates, frees, pins, queries or waits fails and ends the capture (CUDA's
// cuThreadExchangeStreamCaptureMode). The scope therefore uses the relaxed mode, which is safe
// because our calls wait for no captured stream. Drivers before CUDA 10.1 have no such mode.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context)
      : driver_(context.driver()), pushed_(driver_.cuCtxPushCurrent_v2(context.handle())) {
    exchange_mode();
  }
  ~CurrentContext() {
    exchange_mode();
    CUcontext popped = nullptr;
    if (pushed_ == CUDA_SUCCESS) driver_.cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  // On an error, calls would use another context, or none.
  CUresult result() const { return pushed_; }

 private:
  void exchange_mode() {
    if (pushed_ != CUDA_SUCCESS || driver_.cuThreadExchangeStreamCaptureMode == nullptr) return;
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }

  const Driver& driver_;
  const CUresult pushed_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the thread's own meanwhile
};

}  // namespace headrace::cuda
