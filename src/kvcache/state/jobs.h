// SPDX-License-Identifier: Apache-2.0
// The jobs that continue the operations of a KV store after their call: loads, stores, removals.
//
// A Job runs when a copy has ended. It is part of its operation, so no end needs memory. Jobs that
// take time (checksums, copies that cores make for a load) are run by the worker or by waiting
// threads. A job may start work that needs memory. Without memory that work fails and the block is
// dropped. Functions that the Mover's callbacks call are noexcept.
//
// JobQueue is Thread-safe. JobList is Thread-compatible: the owner of a list guards it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "headrace/clock.h"
#include "headrace/mover.h"
#include "headrace/result.h"

namespace headrace::kvcache {

// Longer timeouts are shortened to this, so that sums of times do not overflow.
inline constexpr Nanoseconds kLongestWait = std::chrono::years{1};

// The order in which jobs run: loads do not wait for checksums of blocks that leave.
enum class Turn : std::uint8_t { demand, load, other };

struct Job {
  virtual ~Job() = default;
  virtual void run() noexcept = 0;
  virtual Turn turn() const { return Turn::other; }
  Job* next = nullptr;
  bool queued = false;  // in a JobQueue, whose lock guards this field
};

// In order of arrival; owns no job.
class JobList {
 public:
  JobList() = default;
  JobList(const JobList&) = delete;
  JobList& operator=(const JobList&) = delete;
  bool empty() const { return first_ == nullptr; }
  Job* first() const { return first_; }
  std::size_t size() const { return size_; }
  void push(Job& job) {
    job.next = nullptr;
    *last_ = &job;
    last_ = &job.next;
    ++size_;
  }
  // Returns nullptr if the list is empty.
  Job* pop() {
    Job* const job = first_;
    if (job == nullptr) return nullptr;
    first_ = job->next;
    if (first_ == nullptr) last_ = &first_;
    --size_;
    return job;
  }
  // Returns whether the job was in the list.
  bool remove(Job& job) {
    for (Job** at = &first_; *at != nullptr; at = &(*at)->next) {
      if (*at != &job) continue;
      *at = job.next;
      if (last_ == &job.next) last_ = at;
      --size_;
      return true;
    }
    return false;
  }

 private:
  Job* first_ = nullptr;
  Job** last_ = &first_;
  std::size_t size_ = 0;
};

// The queue, its workers, and the count of operations.
class JobQueue {
 public:
  // Starts workers. `due` does work that has become due, and returns the time until the next; it is
  // Thread-safe. Errors: those of threads; stop() is to be called then too.
  Status start(unsigned workers, std::function<Nanoseconds()> due);
  // Ends the workers once no job is left.
  void stop();
  // Whether the calling thread is one of the workers.
  bool of_worker() const;
  // A worker calls `due` again before it sleeps on.
  void wake() noexcept;

  void enqueue(Job& job) noexcept;
  // All of them, which takes the lock once. The list is empty afterwards.
  void enqueue(JobList& jobs) noexcept;
  // The turn of the job, if it is queued, has become Turn::demand.
  void hasten(Job& job) noexcept;
  // Runs the next job. Returns false if there is none.
  bool run_one();

  // An operation counts until it accesses the store for the last time.
  void begin_operation() { ++operations_; }
  // Must be the last access: the store may be destroyed after it.
  void end_operation() { --operations_; }
  bool idle() const { return operations_.load() == 0; }

 private:
  JobList& jobs_of(Turn turn) REQUIRES(mutex_) { return jobs_[static_cast<std::size_t>(turn)]; }
  void work();

  Mutex mutex_;
  CondVar there_;
  std::array<JobList, 3> jobs_ GUARDED_BY(mutex_);  // by turn
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool due_changed_ GUARDED_BY(mutex_) = false;
  std::function<Nanoseconds()> due_;  // constant once a worker has started
  std::vector<std::thread> workers_;
  std::atomic<std::uint64_t> operations_{0};
};

// A job that is notified when a copy ends.
struct Copying : Job {
  // Makes the end of `transfer` call copied(). If there is no memory for that, a job tries again.
  void hear(JobQueue& jobs, const Transfer& transfer) noexcept;
  virtual void copied(const Result<MoveStats>& outcome) noexcept = 0;

 protected:
  // For run(): returns whether the job only had to be notified.
  bool heard_late(JobQueue& jobs) noexcept;

 private:
  std::optional<Transfer> unheard_;
};

// Work that is done after the lock is released.
class Later {
 public:
  Later() = default;
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;
  ~Later() {
    while (Job* const job = jobs_.pop()) job->run();
  }
  void add(Job& job) { jobs_.push(job); }

 private:
  JobList jobs_;
};

// An end that threads wait for and callbacks report.
struct Ending {
  Mutex mutex;
  std::atomic<bool> over{false};  // the outcome no longer changes
  std::vector<std::function<void()>> thens GUARDED_BY(mutex);

  // Reports the end: changes `word` and wakes the threads that wait on it, then calls `thens`.
  void report(Waiting& waiting, std::atomic<std::uint32_t>& word) noexcept;
};

}  // namespace headrace::kvcache
