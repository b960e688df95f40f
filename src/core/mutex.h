// SPDX-License-Identifier: Apache-2.0
// A mutex with rules that the compiler checks: fields declare GUARDED_BY(mutex_), functions declare
// REQUIRES(mutex_), and clang's -Werror=thread-safety rejects violations.
//
// Thread-safe. User threads wait through Waiting (waiting.h) on an atomic word, so that a test can
// replace it; CondVar is for the library's own threads.
#pragma once

#include <pthread.h>
#include <time.h>

#include <chrono>
#include <cstddef>
#include <limits>

#include "core/turns/turns.h"
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
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() ACQUIRE() { pthread_mutex_lock(&mutex_); }
  void unlock() RELEASE() { pthread_mutex_unlock(&mutex_); }
  // Tells the compiler that the caller of this function holds the lock.
  void assert_held() const ASSERT_HELD() {}

 private:
  friend class CondVar;
  // Adaptive: most mutexes are held for less time than a sleep and wake-up take, so glibc retries a
  // locked one about a hundred times before it sleeps.
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
#endif
};

// Holds a Mutex for a scope; may be unlocked and locked again inside it.
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

// For a worker thread that sleeps until there is work. Waits always have a bound.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;
  ~CondVar() { pthread_cond_destroy(&condition_); }

  // Sleeps until notified or until `timeout` has passed. May wake early; the caller checks again.
  void wait_for(Mutex& mutex, Nanoseconds timeout) REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    if (ThreadTurns* const turns = ThreadTurns::current()) {
      turns->expect(this);
      mutex.unlock();
      turns->await(timeout);
      mutex.lock();
      return;
    }
    const auto end = (std::chrono::steady_clock::now() + timeout).time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(end);
    const timespec at{.tv_sec = seconds.count(), .tv_nsec = Nanoseconds(end - seconds).count()};
    pthread_cond_clockwait(&condition_, &mutex.mutex_, CLOCK_MONOTONIC, &at);
  }
  void notify_one() {
    if (ThreadTurns* const turns = ThreadTurns::current()) return turns->notify(this, 1);
    pthread_cond_signal(&condition_);
  }
  void notify_all() {
    constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    if (ThreadTurns* const turns = ThreadTurns::current()) return turns->notify(this, kAll);
    pthread_cond_broadcast(&condition_);
  }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace headrace
