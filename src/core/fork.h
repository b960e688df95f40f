// SPDX-License-Identifier: Apache-2.0
// What a child made by fork() has of its parent's objects (docs/design/fork.md): the memory, and
// none of the threads.
//
// An object that owns threads, rings or descriptors belongs to the process that made it. It has an
// Origin, and where that is another process each of its operations fails at once, touching nothing,
// and its destructor leaves it as it is (abandon): another thread may have been changing it, and
// the locks of it may be held for ever. What a process has once is guarded by a GlobalMutex, which
// is free in the child. Thread-safe.
#pragma once

#include <atomic>
#include <string_view>
#include <utility>

#include "core/mutex.h"
#include "headrace/result.h"

namespace headrace {

// Grows with each fork() on the way to this process, once somebody listens for them.
inline constinit std::atomic<unsigned> forks_so_far{0};
// Sees to it that forks are heard of; the number of them.
unsigned fork_generation();

// The process in which an object was made.
class Origin {
 public:
  // False in a child.
  bool here() const { return generation_ == forks_so_far.load(); }
  // unsupported: in a child. `what` is the object in words: "the mover".
  Status check(std::string_view what) const;

 private:
  unsigned generation_ = fork_generation();
};

// Keeps a parent's object for as long as the child lives, and does nothing to it.
template <class T>
void abandon(T&& object);

// A lock of the whole process that only the forking thread holds during a fork(). Requires: a
// variable of a namespace, there since the library was loaded: one that is made while another is
// held could meet a fork() that waits for that one. One of a lower rank is taken before one of a
// higher; those of equal ranks not together, but for the thread that forks.
class CAPABILITY("mutex") GlobalMutex : public Mutex {
 public:
  explicit GlobalMutex(int rank);

 private:
  friend struct GlobalMutexes;
  const int rank_;
  GlobalMutex* next_ = nullptr;
};

// The ranks there are.
inline constexpr int kRankOfKinds = 0;    // the heaps of malloc.h, opened under it
inline constexpr int kRankOfHeaps = 1;    // the insides of heaps
inline constexpr int kRankOfMemory = 2;   // promises of free memory
inline constexpr int kRankOfFiles = 3;    // open rings and work queues
inline constexpr int kRankOfPages = 4;    // those of heaps that a child does not have
inline constexpr int kRankOfKernel = 5;   // the choice of a copy kernel
inline constexpr int kRankOfScale = 6;    // latencies, by which cold lines are told
inline constexpr int kRankOfTicks = 7;    // the rate of the CPU's counter
inline constexpr int kRankOfReaders = 8;  // the caches there are, whose threads come and go
inline constexpr int kRankOfTracked = 9;  // the memory that sources of hotness track
inline constexpr int kRankOfHwloc = 10;   // hwloc's own locks
inline constexpr int kRankOfGpu = 11;     // the drivers of GPUs

// What a process makes once, when it is first asked for, and keeps. A static variable of a function
// would not do where making it takes long: its guard, taken by another thread at a fork(), is taken
// in the child for ever. Requires: as GlobalMutex; make() takes none of a lower rank.
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

// What abandon() keeps, linked so that it is not lost.
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
