// SPDX-License-Identifier: Apache-2.0
// A stream: operations in order, in its own thread; and the marks by which other threads wait for
// them.
//
// Thread-safe, except that only one thread ends a stream, and never its own thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "core/mutex.h"

namespace headrace::cuda::fake {

class Context;
using Clock = std::chrono::steady_clock;

// A mark that a stream reaches; set once.
class Mark {
 public:
  void set(CUresult result);
  CUresult query() const;  // CUDA_ERROR_NOT_READY: it is not set
  CUresult wait() const;   // waits until it is set; returns the outcome
  bool wait_for(std::chrono::nanoseconds bound) const;  // whether it is set
  Clock::time_point when() const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  CUresult result_ GUARDED_BY(mutex_) = CUDA_SUCCESS;
  Clock::time_point when_ GUARDED_BY(mutex_);
};

using Work = std::function<CUresult()>;

class Stream {
 public:
  explicit Stream(std::shared_ptr<Context> of);
  // Waits for the enqueued work.
  ~Stream();

  // Does `work` after all earlier work in this stream and the mark `after`, if there is one.
  std::shared_ptr<Mark> enqueue(Work work, std::shared_ptr<Mark> after = nullptr);
  // The mark of the last enqueued work; already set if there was none.
  std::shared_ptr<Mark> last() const;

  const std::shared_ptr<Context> context;

 private:
  struct Operation {
    Work work;
    std::shared_ptr<Mark> after;
    std::shared_ptr<Mark> mark;
  };
  void serve();

  mutable Mutex mutex_;
  CondVar more_;
  std::deque<Operation> queue_ GUARDED_BY(mutex_);
  std::shared_ptr<Mark> last_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace headrace::cuda::fake
