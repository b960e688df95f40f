// SPDX-License-Identifier: Apache-2.0
// A stream: operations in order, on a thread of its own; and the marks by which others wait for
// them.
//
// Thread-safe, but that a stream is ended by one thread only, and never by its own.
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

// Something that a stream will have done: set once.
class Mark {
 public:
  void set(CUresult result);
  bool done() const;
  CUresult wait() const;                                // until it is set; how that went
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

// What a stream gives each operation to; a context is one.
class Runner {
 public:
  virtual ~Runner() = default;
  // Does `work` when all of `after` is done.
  virtual CUresult run(const Marks& after, const Work& work) = 0;
};

class Stream {
 public:
  Stream(Runner& runner, bool blocking);
  // Waits for what was enqueued.
  ~Stream();

  bool blocking() const { return blocking_; }  // takes turns with the legacy default stream

  // Does `work` when all before it in this stream, and `after`, is done.
  std::shared_ptr<Mark> enqueue(Work work, Marks after = {});
  // The mark of what was enqueued last; set when nothing ever was.
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
