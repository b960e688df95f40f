// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/context.h"

#include <algorithm>
#include <utility>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {

BoundStream::BoundStream(std::shared_ptr<Context> of, bool blocking)
    : context(std::move(of)), stream(*context, blocking) {}

CUresult Context::begin_operation() {
  const std::uint64_t number = ++operations_;
  if (settings_.lost_after > 0 && number > settings_.lost_after) {
    fail(static_cast<CUresult>(settings_.lost_error));
  }
  const MutexLock lock(mutex_);
  if (settings_.stall_after > 0 && number > settings_.stall_after) {
    while (!closed_) closing_.wait_for(mutex_, std::chrono::seconds(1));
  }
  return closed_ ? CUDA_ERROR_CONTEXT_IS_DESTROYED : failure_;
}

CUresult Context::run(const Marks& after, const Work& work) {
  for (const auto& mark : after) {
    while (!mark->wait_for(std::chrono::milliseconds(100))) {
      if (closed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
  }
  if (const CUresult failed = begin_operation(); failed != CUDA_SUCCESS) return failed;
  const CUresult result = work();
  if (result != CUDA_SUCCESS) fail(result);
  return result;
}

void Context::sleep(std::chrono::nanoseconds time) {
  const auto end = Clock::now() + time;
  const MutexLock lock(mutex_);
  while (!closed_) {
    const auto left = end - Clock::now();
    if (left <= std::chrono::nanoseconds(0)) return;
    closing_.wait_for(mutex_, left);
  }
}

void Context::sleep_until(Clock::time_point end) {
  constexpr std::chrono::microseconds kLate{100};  // how late a sleeping thread wakes
  if (const auto left = end - Clock::now(); left > kLate) sleep(left - kLate);
  while (Clock::now() < end && !closed()) {
  }
}

std::shared_ptr<BoundStream> Context::legacy() {
  const MutexLock lock(mutex_);
  if (legacy_ == nullptr && !closed_) {
    legacy_ = std::make_shared<BoundStream>(shared_from_this(), true);
  }
  return legacy_;
}

std::shared_ptr<BoundStream> Context::add_stream(bool blocking) {
  auto stream = std::make_shared<BoundStream>(shared_from_this(), blocking);
  const MutexLock lock(mutex_);
  if (closed_) return nullptr;
  streams_.push_back(stream);
  return stream;
}

std::shared_ptr<BoundStream> Context::of_thread() {
  const auto thread = std::this_thread::get_id();
  const auto made = [&]() -> std::shared_ptr<BoundStream> {
    const MutexLock lock(mutex_);
    const auto known = of_threads_.find(thread);
    return known == of_threads_.end() ? nullptr : known->second;
  }();
  if (made != nullptr) return made;
  auto stream = add_stream(true);
  const MutexLock lock(mutex_);
  if (!closed_ && stream != nullptr) of_threads_.emplace(thread, stream);
  return stream;
}

void Context::retire(const std::shared_ptr<BoundStream>& stream) {
  std::vector<std::shared_ptr<BoundStream>> ended;  // joined without the lock
  const MutexLock lock(mutex_);
  std::erase(streams_, stream);
  if (!closed_) retired_.push_back(stream);
  for (auto& each : retired_) {
    if (each->stream.last()->done()) ended.push_back(std::move(each));
  }
  std::erase(retired_, nullptr);
}

std::shared_ptr<Mark> Context::enqueue(BoundStream& stream, Work work, Marks after) {
  const MutexLock lock(mutex_);
  if (&stream == legacy_.get()) {
    for (const auto& other : streams_) {
      if (other->stream.blocking()) after.push_back(other->stream.last());
    }
  } else if (stream.stream.blocking() && legacy_ != nullptr) {
    after.push_back(legacy_->stream.last());
  }
  return stream.stream.enqueue(std::move(work), std::move(after));
}

Marks Context::all_streams() {
  Marks marks;
  const MutexLock lock(mutex_);
  if (legacy_ != nullptr) marks.push_back(legacy_->stream.last());
  for (const auto& stream : streams_) marks.push_back(stream->stream.last());
  for (const auto& stream : retired_) marks.push_back(stream->stream.last());
  return marks;
}

CUresult Context::synchronize() {
  for (const auto& mark : all_streams()) mark->wait();
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
  std::vector<std::shared_ptr<BoundStream>> ended;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    closing_.notify_all();
    ended = std::move(streams_);
    ended.insert(ended.end(), retired_.begin(), retired_.end());
    if (legacy_ != nullptr) ended.push_back(std::move(legacy_));
    streams_.clear();
    retired_.clear();
    of_threads_.clear();
  }
  driver().forget(*this);
}

bool Context::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

}  // namespace headrace::cuda::fake
