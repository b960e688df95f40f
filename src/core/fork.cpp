// SPDX-License-Identifier: Apache-2.0
#include "core/fork.h"

#include <pthread.h>

#include "core/fail.h"

namespace headrace {

// All global mutexes, in ascending rank.
struct GlobalMutexes {
  Mutex adding;
  GlobalMutex* first = nullptr;

  void add(GlobalMutex& mutex) {
    const MutexLock lock(adding);
    GlobalMutex** at = &first;
    while (*at != nullptr && (*at)->rank_ <= mutex.rank_) at = &(*at)->next_;
    mutex.next_ = *at;
    *at = &mutex;
  }
  void lock_all() NO_THREAD_SAFETY_ANALYSIS {
    adding.lock();
    for (GlobalMutex* each = first; each != nullptr; each = each->next_) each->lock();
  }
  void unlock_all() NO_THREAD_SAFETY_ANALYSIS {
    for (GlobalMutex* each = first; each != nullptr; each = each->next_) each->unlock();
    adding.unlock();
  }
};

namespace {

// Never destroyed: threads may run and fork while the program ends.
GlobalMutexes& global_mutexes() {
  static GlobalMutexes& all = *new GlobalMutexes;
  return all;
}

constinit std::atomic<Abandoned*> abandoned{nullptr};

}  // namespace

unsigned fork_generation() {
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { global_mutexes().lock_all(); }, [] { global_mutexes().unlock_all(); },
                     [] {
                       ++forks_so_far;
                       global_mutexes().unlock_all();
                     });
  return forks_so_far.load();
}

Status Origin::check(std::string_view what) const {
  if (here()) return {};
  return fail(ErrorCode::unsupported,
              "{} was made before a fork() and belongs to the parent; make one in this process",
              what);
}

GlobalMutex::GlobalMutex(int rank) : rank_(rank) {
  fork_generation();  // registers the fork handler
  global_mutexes().add(*this);
}

Abandoned::Abandoned() : next(abandoned.load()) {
  while (!abandoned.compare_exchange_weak(next, this)) {
  }
}

}  // namespace headrace
