// SPDX-License-Identifier: Apache-2.0
// The primary context of a GPU, which all libraries of a process share (PyTorch and CuPy too), and
// its use for the length of one call.
//
// A thread's own current context is what it was after each use, and so is how its calls go with
// graphs that other threads capture. Thread-safe.
#pragma once

#include <memory>

#include "backend/cuda/driver.h"
#include "core/fork.h"

namespace headrace::cuda {

class Context {
 public:
  // That of a GPU; kept as long as somebody holds it. absent: no such GPU. exhausted: no memory on
  // it for a context.
  static Result<std::shared_ptr<const Context>> of(const Driver& driver, CUdevice device);
  // Whether somebody in this process has made that of a GPU; false where the driver does not tell.
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
  CUcontext handle_ = nullptr;  // set once, before others see it
};

// Lets the GPU of each of two contexts reach the other's memory, where the hardware can; true: both
// do. It stays so, for all that use these contexts.
bool enable_peer_access(const Context& one, const Context& other);

// Makes a context the calling thread's current one for a scope, in which no call breaks a graph
// that another thread captures: in the mode in which PyTorch captures (global), a call of any
// thread that allocates, frees, pins, asks or waits would fail and end the capture (CUDA's
// cuThreadExchangeStreamCaptureMode). Ours wait for no captured stream. Drivers before CUDA 10.1
// cannot be told so.
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

  // Else calls would go to another context, or to none.
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
