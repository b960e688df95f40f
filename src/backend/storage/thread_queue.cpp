// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "backend/storage/queue.h"
#include "core/fail.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace headrace::storage {
namespace {

// The longest sleep of an idle worker. Work wakes it; the bound only guards against a lost
// notification.
constexpr Nanoseconds kIdleThread = std::chrono::seconds{10};

class ThreadQueue final : public Queue {
 public:
  // Allocates everything that start() and the threads need.
  ThreadQueue(std::size_t threads, std::size_t depth) : most_(std::max<std::size_t>(threads, 1)) {
    workers_.reserve(most_);
    const MutexLock lock(mutex_);
    pending_.reserve(depth);
    finished_.reserve(depth);
  }
  ~ThreadQueue() override {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) join(worker);
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  Status add_worker();

  void start(Request& request) override;
  void cancel(Request& request) override;
  void wait(Nanoseconds timeout, std::vector<Finished>& out) override;
  void wake() override;
  std::optional<int> wake_descriptor() const override { return std::nullopt; }
  std::string describe() const override { return fmt::format("pread in {} threads", most_); }

 private:
  void work();

  const std::size_t most_;
  std::vector<std::thread> workers_;  // for the owning thread only
  Mutex mutex_;
  CondVar work_;
  CondVar news_;
  std::vector<Request*> pending_ GUARDED_BY(mutex_);
  std::vector<Finished> finished_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
  bool woken_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
};

Status ThreadQueue::add_worker() {
  HEADRACE_TRY(std::thread worker, start_thread("headrace-pread", [this] { work(); }));
  workers_.push_back(std::move(worker));
  return {};
}

void ThreadQueue::start(Request& request) {
  bool busy = false;
  {
    const MutexLock lock(mutex_);
    pending_.push_back(&request);
    busy = idle_ < pending_.size();
  }
  // If no further thread can start, the request waits for an existing one.
  try {
    if (busy && workers_.size() < most_) static_cast<void>(add_worker().has_value());
  } catch (const std::bad_alloc&) {
  }
  work_.notify_one();
}

void ThreadQueue::cancel(Request& request) {
  const MutexLock lock(mutex_);
  if (std::erase(pending_, &request) != 0) finished_.push_back({&request, -ECANCELED});
}

void ThreadQueue::wait(Nanoseconds timeout, std::vector<Finished>& out) {
  const MutexLock lock(mutex_);
  if (finished_.empty() && !woken_) news_.wait_for(mutex_, timeout);
  woken_ = false;
  out.insert(out.end(), finished_.begin(), finished_.end());
  finished_.clear();
}

void ThreadQueue::wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  news_.notify_one();
}

void ThreadQueue::work() {
  MutexLock lock(mutex_);
  while (true) {
    if (pending_.empty()) {
      if (ending_) return;
      ++idle_;
      work_.wait_for(mutex_, kIdleThread);
      --idle_;
      continue;
    }
    Request& request = *pending_.front();
    pending_.erase(pending_.begin());
    lock.unlock();
    const auto offset = static_cast<off_t>(request.offset);
    const ssize_t moved = request.write ? pwrite(request.fd, request.memory, request.bytes, offset)
                                        : pread(request.fd, request.memory, request.bytes, offset);
    const int result = moved < 0 ? -errno : static_cast<int>(moved);
    lock.lock();
    finished_.push_back({&request, result});
    news_.notify_one();
  }
}

}  // namespace

Result<std::unique_ptr<Queue>> open_threads(std::size_t threads, std::size_t depth) {
  auto queue = std::make_unique<ThreadQueue>(threads, depth);
  HEADRACE_TRY_STATUS(queue->add_worker());
  return queue;
}

}  // namespace headrace::storage
