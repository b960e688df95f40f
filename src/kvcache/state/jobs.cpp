// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/jobs.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/fail.h"
#include "core/thread.h"

namespace headrace::kvcache {
namespace {

constexpr Nanoseconds kWorkerSleep = std::chrono::seconds{1};

thread_local const JobQueue* queue_of_thread = nullptr;  // of a worker

}  // namespace

Status JobQueue::start(unsigned workers, std::function<Nanoseconds()> due) {
  due_ = std::move(due);
  workers_.reserve(workers);
  while (workers_.size() < workers) {
    HEADRACE_TRY(auto worker, start_thread("headrace-kv", [this] { work(); }));
    workers_.push_back(std::move(worker));
  }
  return {};
}

bool JobQueue::of_worker() const { return queue_of_thread == this; }

void JobQueue::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  there_.notify_all();
  for (std::thread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

void JobQueue::wake() noexcept {
  const MutexLock lock(mutex_);
  due_changed_ = true;
  there_.notify_one();
}

void JobQueue::enqueue(Job& job) noexcept {
  const MutexLock lock(mutex_);
  jobs_of(job.turn()).push(job);
  job.queued = true;
  // Notifies under the lock, which the destructor takes. Otherwise the store may be destroyed
  // before, once another thread has run the job.
  there_.notify_one();
}

void JobQueue::enqueue(JobList& jobs) noexcept {
  if (jobs.empty()) return;
  const MutexLock lock(mutex_);
  const bool several = jobs.size() > 1;
  while (Job* const job = jobs.pop()) {
    jobs_of(job->turn()).push(*job);
    job->queued = true;
  }
  several ? there_.notify_all() : there_.notify_one();
}

void JobQueue::hasten(Job& job) noexcept {
  const MutexLock lock(mutex_);
  if (job.queued && jobs_of(Turn::load).remove(job)) jobs_of(Turn::demand).push(job);
}

bool JobQueue::run_one() {
  Job* job = nullptr;
  {
    const MutexLock lock(mutex_);
    for (auto list = jobs_.begin(); job == nullptr && list != jobs_.end(); ++list) {
      job = list->pop();
    }
    if (job != nullptr) job->queued = false;
  }
  if (job == nullptr) return false;
  job->run();
  return true;
}

void JobQueue::work() {
  queue_of_thread = this;
  for (;;) {
    const Nanoseconds next = due_();
    {
      const MutexLock lock(mutex_);
      if (std::ranges::all_of(jobs_, &JobList::empty)) {
        if (stopping_) return;
        if (!due_changed_) there_.wait_for(mutex_, std::min(next, kWorkerSleep));
        due_changed_ = false;
      }
    }
    run_one();
  }
}

void Copying::hear(JobQueue& jobs, const Transfer& transfer) noexcept {
  try {
    // Small enough for a std::function without an allocation.
    transfer.on_done([this](const Result<MoveStats>& outcome) { copied(outcome); });
  } catch (const std::bad_alloc&) {
    unheard_ = transfer;
    jobs.enqueue(*this);
  }
}

bool Copying::heard_late(JobQueue& jobs) noexcept {
  if (!unheard_) return false;
  const Transfer transfer = *std::exchange(unheard_, std::nullopt);
  hear(jobs, transfer);
  return true;
}

void Ending::report(Waiting& waiting, std::atomic<std::uint32_t>& word) noexcept {
  std::vector<std::function<void()>> calls;
  {
    const MutexLock lock(mutex);
    over = true;
    word.fetch_add(1);  // a thread that sees the word changed also sees `over`
    calls.swap(thens);
  }
  waiting.wake_all(word);
  for (const auto& call : calls) call();
}

}  // namespace headrace::kvcache
