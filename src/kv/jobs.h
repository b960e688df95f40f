// What a KV store has to do later, and lists of it: each job is part of what it belongs to, so
// that none needs memory. Thread-compatible: whoever has a list guards it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::kv {

// Whose jobs are done first: loads wait for no checksum of a block that leaves.
enum class Turn : std::uint8_t { demand, load, other };

struct Job {
  virtual ~Job() = default;
  virtual void run() noexcept = 0;
  virtual Turn turn() const { return Turn::other; }
  Job* next = nullptr;
  bool queued = false;  // in jobs_; guarded by jobs_mutex_
};

// In their order; it owns none.
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
  // nullptr: empty.
  Job* pop() {
    Job* const job = first_;
    if (job == nullptr) return nullptr;
    first_ = job->next;
    if (first_ == nullptr) last_ = &first_;
    --size_;
    return job;
  }
  // Whether it was there.
  bool remove(Job& job);

 private:
  Job* first_ = nullptr;
  Job** last_ = &first_;
  std::size_t size_ = 0;
};

}  // namespace headrace::kv
