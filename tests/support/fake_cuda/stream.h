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

using Clock = std::chrono::steady_clock;

// A mark that a stream reaches; set once.
class Mark {
 public:
  void set(CUresult result);
  bool done() const;
  CUresult wait() const;  // waits until it is set; returns the outcome
  bool wait_for(std::chrono::nanoseconds bound) const;  // whether it is set
  Clock::time_point when() const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  CUresult result_ GUARDED_BY(mutex_) = CUDA_SUCCESS;
  Clock::time_point when_ GUARDED_BY(mutex_);
};

using Marks = std::vector<std::shared_ptr<Mark>>;
using Work = std::function<CUresult()>;

// The object to which a stream gives each operation, for instance a context.
class Runner {
 public:
  virtual ~Runner() = default;
  // Does `work` after all marks of `after`.
  virtual CUresult run(const Marks& after, const Work& work) = 0;
};

class Stream {
 public:
  Stream(Runner& runner, bool blocking);
  // Waits for the enqueued work.
  ~Stream();

  bool blocking() const { return blocking_; }  // alternates with the legacy default stream

  // Does `work` after all earlier work in this stream and all marks of `after`.
  std::shared_ptr<Mark> enqueue(Work work, Marks after = {});
  // The mark of the last enqueued work; already set if there was none.
  std::shared_ptr<Mark> last() const;

 private:
  struct Operation {
    Work work;
    Marks after;
    std::shared_ptr<Mark> mark;
  };
  void serve();

  Runner& runner_;
  const bool blocking_;
  mutable Mutex mutex_;
  CondVar more_;
  std::deque<Operation> queue_ GUARDED_BY(mutex_);
  std::shared_ptr<Mark> last_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace headrace::cuda::fake
