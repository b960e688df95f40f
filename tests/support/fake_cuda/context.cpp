// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/context.h"

#include <utility>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {

CUresult Context::begin_operation() {
  const std::uint64_t number = ++operations_;
  if (settings_.lost_after > 0 && number > settings_.lost_after) {
    fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  const MutexLock lock(mutex_);
  if (settings_.stall_after > 0 && number > settings_.stall_after) {
    while (!closed_) closing_.wait_for(mutex_, std::chrono::seconds(1));
  }
  return closed_ ? CUDA_ERROR_CONTEXT_IS_DESTROYED : failure_;
}

CUresult Context::run(const Mark* after, const Work& work) {
  while (after != nullptr && !after->wait_for(std::chrono::milliseconds(100))) {
    if (closed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (const CUresult failed = begin_operation(); failed != CUDA_SUCCESS) return failed;
  const CUresult result = work();
  if (result != CUDA_SUCCESS) fail(result);
  return result;
}

void Context::sleep_until(Clock::time_point end) {
  constexpr std::chrono::microseconds kLate{100};  // how late a sleeping thread wakes
  {
    const MutexLock lock(mutex_);
    while (!closed_ && end - Clock::now() > kLate) {
      closing_.wait_for(mutex_, end - Clock::now() - kLate);
    }
  }
  while (Clock::now() < end && !closed()) {
  }
}

std::shared_ptr<Stream> Context::default_of(std::thread::id thread) {
  const MutexLock lock(mutex_);
  if (closed_) return nullptr;
  auto& stream = defaults_[thread];
  if (stream == nullptr) {
    stream = streams_.emplace_back(std::make_shared<Stream>(shared_from_this()));
  }
  return stream;
}

std::shared_ptr<Stream> Context::add_stream() {
  auto stream = std::make_shared<Stream>(shared_from_this());
  const MutexLock lock(mutex_);
  if (closed_) return nullptr;
  return streams_.emplace_back(std::move(stream));
}

CUresult Context::synchronize() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const MutexLock lock(mutex_);
    all = streams_;
  }
  for (const auto& stream : all) stream->last()->wait();
  return failure();
}

bool Context::enable_peer(int ordinal) {
  const MutexLock lock(mutex_);
  return peers_.insert(ordinal).second;
}

bool Context::peer_enabled(int ordinal) const {
  const MutexLock lock(mutex_);
  return peers_.contains(ordinal);
}

void Context::fail(CUresult error) {
  const MutexLock lock(mutex_);
  if (failure_ == CUDA_SUCCESS) failure_ = error;
}

CUresult Context::failure() const {
  const MutexLock lock(mutex_);
  return closed_ ? CUDA_ERROR_CONTEXT_IS_DESTROYED : failure_;
}

void Context::set_pending(CUresult error) {
  const MutexLock lock(mutex_);
  pending_ = error;
}

CUresult Context::take_pending() {
  const MutexLock lock(mutex_);
  return std::exchange(pending_, CUDA_SUCCESS);
}

void Context::close() {
  std::vector<std::shared_ptr<Stream>> ended;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    closing_.notify_all();
    ended = std::move(streams_);
    streams_.clear();
    defaults_.clear();
  }
  driver().forget(*this);
}

bool Context::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

}  // namespace headrace::cuda::fake
