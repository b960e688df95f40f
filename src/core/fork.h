// SPDX-License-Identifier: Apache-2.0
// The state of a parent's objects in a child made by fork() (docs/design/fork.md): the child has
// their memory, but none of the threads.
//
// An object with threads, rings or descriptors belongs to the process that created it. It has an
// Origin. In any other process its operations fail at once without touching it, and its destructor
// leaves it unchanged (abandon): another thread may have been modifying it at the fork, and its
// locks may be held forever. State of the whole process is guarded by a GlobalMutex, which is free
// in the child. Thread-safe.
#pragma once

#include <atomic>
#include <string_view>
#include <utility>

#include "core/mutex.h"
#include "headrace/result.h"

namespace headrace {

// Counts the fork() calls that led to this process, once fork_generation() was called.
inline constinit std::atomic<unsigned> forks_so_far{0};
// Makes sure that forks are counted; returns their number.
unsigned fork_generation();

// The process that created an object.
class Origin {
 public:
  // False in a child.
  bool here() const { return generation_ == forks_so_far.load(); }
  // Errors: unsupported: in a child. `what` is the object in words: "the mover".
  Status check(std::string_view what) const;

 private:
  unsigned generation_ = fork_generation();
};

// Leaks a parent's object in the child, without touching it.
template <class T>
void abandon(T&& object);

// A lock of the whole process that only the forking thread holds during a fork(). Requires: a
// variable at namespace scope, created when the library is loaded. A lock created while another is
// held could meet a fork() that waits for that other one. Lower ranks are locked before higher
// ones. Locks of equal rank are never held together, except by the forking thread.
class CAPABILITY("mutex") GlobalMutex : public Mutex {
 public:
  explicit GlobalMutex(int rank);

 private:
  friend struct GlobalMutexes;
  const int rank_;
  GlobalMutex* next_ = nullptr;
};

// The ranks in use.
inline constexpr int kRankOfKinds = 0;    // the heaps of malloc.h, opened under it
inline constexpr int kRankOfHeaps = 1;    // the internal state of heaps
inline constexpr int kRankOfMemory = 2;   // reservations of free memory
inline constexpr int kRankOfFiles = 3;    // open rings and work queues
inline constexpr int kRankOfPages = 4;    // pages of heaps that a child does not inherit
inline constexpr int kRankOfKernel = 5;   // the choice of a copy kernel
inline constexpr int kRankOfScale = 6;    // latencies that classify lines as uncached
inline constexpr int kRankOfTicks = 7;    // the rate of the CPU's counter
inline constexpr int kRankOfReaders = 8;  // the existing caches, whose threads start and end
inline constexpr int kRankOfTracked = 9;  // the memory that sources of hotness track
inline constexpr int kRankOfHwloc = 10;   // hwloc's own locks
inline constexpr int kRankOfGpu = 11;     // the drivers of GPUs

// A value that a process creates at its first request, and keeps. A static variable of a function
// is not enough if creation takes long: if another thread holds its guard at a fork(), the guard
// stays held in the child. Requires: as GlobalMutex; make() locks no lower rank.
template <class T>
class MadeOnce {
 public:
  explicit MadeOnce(int rank) : mutex_(rank) {}

  template <class Make>
  const T& get(const Make& make) {
    // Acquire: pairs with the store below.
    if (const T* made = made_.load(std::memory_order_acquire)) return *made;
    const MutexLock lock(mutex_);
    if (made_.load() == nullptr) made_ = new T(make());
    return *made_.load();
  }

 private:
  GlobalMutex mutex_;
  std::atomic<const T*> made_{nullptr};
};

// Memory kept by abandon(), linked so that leak checkers find it.
struct Abandoned {
  Abandoned();
  virtual ~Abandoned() = default;
  Abandoned* next;
};

template <class T>
void abandon(T&& object) {
  struct Kept final : Abandoned {
    explicit Kept(T&& o) : kept(std::forward<T>(o)) {}
    std::remove_cvref_t<T> kept;
  };
  new Kept(std::forward<T>(object));
}

}  // namespace headrace
