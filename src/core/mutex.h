// SPDX-License-Identifier: Apache-2.0
// A mutex whose rules the compiler checks: fields say GUARDED_BY(mutex_), functions say
// REQUIRES(mutex_), and clang's -Werror=thread-safety refuses code that forgets.
//
// Thread-safe. A user's wait goes through Waiting (clock.h) on an atomic word, so that a test can
// take its place; CondVar is for threads the library owns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "headrace/units.h"

#if defined(__clang__)
#define HEADRACE_ANNOTATE(x) __attribute__((x))
#else
#define HEADRACE_ANNOTATE(x)
#endif
#define CAPABILITY(name) HEADRACE_ANNOTATE(capability(name))
#define SCOPED_CAPABILITY HEADRACE_ANNOTATE(scoped_lockable)
#define GUARDED_BY(mutex) HEADRACE_ANNOTATE(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) HEADRACE_ANNOTATE(pt_guarded_by(mutex))
#define REQUIRES(...) HEADRACE_ANNOTATE(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) HEADRACE_ANNOTATE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) HEADRACE_ANNOTATE(release_capability(__VA_ARGS__))
#define ASSERT_HELD(...) HEADRACE_ANNOTATE(assert_capability(__VA_ARGS__))
#define EXCLUDES(...) HEADRACE_ANNOTATE(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS HEADRACE_ANNOTATE(no_thread_safety_analysis)

namespace headrace {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  // For the compiler: in a function that is only called by the lock's holder.
  void assert_held() const ASSERT_HELD() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope; may be let go and taken again inside it.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// For a worker thread that sleeps until there is work. Always with a bound.
class CondVar {
 public:
  // Sleeps until notified or `timeout` has passed. May wake early; the caller looks again.
  void wait_for(Mutex& mutex, Nanoseconds timeout) REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, timeout);
    lock.release();
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace headrace
