// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/stream.h"

#include <utility>

#include "support/fake_cuda/context.h"

namespace headrace::cuda::fake {
namespace {

constexpr std::chrono::seconds kLook{1};  // a sleeping thread checks again at least this often

}  // namespace

void Mark::set(CUresult result) {
  const MutexLock lock(mutex_);
  done_ = true;
  result_ = result;
  when_ = Clock::now();
  changed_.notify_all();
}

CUresult Mark::query() const {
  const MutexLock lock(mutex_);
  return done_ ? result_ : CUDA_ERROR_NOT_READY;
}

CUresult Mark::wait() const {
  const MutexLock lock(mutex_);
  while (!done_) changed_.wait_for(mutex_, kLook);
  return result_;
}

bool Mark::wait_for(std::chrono::nanoseconds bound) const {
  const MutexLock lock(mutex_);
  if (!done_) changed_.wait_for(mutex_, bound);
  return done_;
}

Clock::time_point Mark::when() const {
  const MutexLock lock(mutex_);
  return when_;
}

Stream::Stream(std::shared_ptr<Context> of)
    : context(std::move(of)), last_(std::make_shared<Mark>()) {
  last_->set(CUDA_SUCCESS);
  thread_ = std::thread([this] { serve(); });
}

Stream::~Stream() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    more_.notify_all();
  }
  thread_.join();
}

std::shared_ptr<Mark> Stream::enqueue(Work work, std::shared_ptr<Mark> after) {
  auto mark = std::make_shared<Mark>();
  const MutexLock lock(mutex_);
  queue_.push_back({std::move(work), std::move(after), mark});
  last_ = mark;
  more_.notify_all();
  return mark;
}

std::shared_ptr<Mark> Stream::last() const {
  const MutexLock lock(mutex_);
  return last_;
}

void Stream::serve() {
  while (true) {
    Operation next;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !ending_) more_.wait_for(mutex_, kLook);
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    const CUresult result = context->run(next.after.get(), next.work);
    next.work = nullptr;  // frees its captures before the mark is set
    next.mark->set(result);
  }
}

}  // namespace headrace::cuda::fake
