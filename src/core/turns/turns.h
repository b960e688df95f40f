// SPDX-License-Identifier: Apache-2.0
// A scheduler that decides which of its threads runs, in place of the operating system's: for
// virtual time and for the exploration of interleavings (sim/scheduler.h). Not a thread pool.
//
// Threads of such a scheduler are ordinary threads of which one runs at a time. They call the
// functions below where they would start, join, notify or sleep otherwise (core/thread.h,
// core/mutex.h). In production current() is null. Only slow paths ask.
//
// Thread-safe, for threads of the scheduler.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>

namespace headrace {

class ThreadTurns {
 public:
  // The scheduler that the calling thread belongs to. Null: it belongs to none.
  static ThreadTurns* current() { return of_thread_; }

  // Registers a thread that the caller is about to start, and returns the body for it. The body
  // waits for its first turn. A body that is destroyed without a call withdraws the thread. Throws
  // std::bad_alloc.
  virtual std::function<void()> adopt(const char* name, std::function<void()> body) = 0;
  // The last adopted thread was started.
  virtual void started(std::thread::id thread) = 0;
  // Waits until a started thread has returned from its body. For any other it returns at once.
  virtual void await_end(std::thread::id thread) = 0;

  // Waiting for a notification has two steps, so that none is lost: expect(), release the lock,
  // await(). await() returns true if notify() came since expect(), false after `timeout`.
  virtual void expect(const void* address) = 0;
  virtual bool await(std::chrono::nanoseconds timeout) = 0;
  // Ends the waits of at most `most` threads that expect `address`, which the scheduler chooses.
  virtual void notify(const void* address, std::size_t most) = 0;
  virtual void sleep(std::chrono::nanoseconds time) = 0;

 protected:
  ThreadTurns() = default;
  virtual ~ThreadTurns() = default;
  static void enter(ThreadTurns* turns) { of_thread_ = turns; }

 private:
  static inline constinit thread_local ThreadTurns* of_thread_ = nullptr;
};

}  // namespace headrace
