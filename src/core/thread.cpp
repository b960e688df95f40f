// SPDX-License-Identifier: Apache-2.0
#include "core/thread.h"

#include <cxxabi.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "core/affinity.h"
#include "core/fail.h"
#include "core/turns/turns.h"

namespace headrace {

namespace {

void name_and_widen(std::thread& thread, const char* name) {
  pthread_setname_np(thread.native_handle(), name);
  try {
    const auto widest = allowed_cpus(getpid());
    if (widest.size() > allowed_cpus().size()) pin(thread.native_handle(), widest);
  } catch (const std::bad_alloc&) {
    // Without memory the thread keeps the CPUs of its creator.
  }
}

// Memory that a thread allocates when it first throws, or first uses a thread-local variable. If
// the library was loaded late (by Python), the loader allocates these variables then, and ends the
// process if there is no memory.
constexpr std::size_t kReserve = 16 << 10;

// Allocates both: a variable of this library, and libstdc++'s state of exceptions.
constinit thread_local void* volatile of_exceptions = nullptr;

void run(const std::function<void()>& body, std::unique_ptr<std::byte[]> reserve) {
  reserve.reset();
  of_exceptions = abi::__cxa_get_globals();
  // Without it a nap of 10 us takes 77 us (the default slack is 50 us), with it 24 us.
  prctl(PR_SET_TIMERSLACK, 1);
  body();
}

}  // namespace

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // A thread must receive the signals that it causes: a blocked one kills the process without its
  // handler.
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> thread;
  try {
    ThreadTurns* const turns = ThreadTurns::current();
    if (turns != nullptr) body = turns->adopt(name, std::move(body));
    thread = std::thread(
        [body = std::move(body), reserve = std::make_unique<std::byte[]>(kReserve)]() mutable {
          run(body, std::move(reserve));
        });
    if (turns != nullptr) turns->started(thread->get_id());
  } catch (const std::system_error& error) {
    thread = fail(ErrorCode::exhausted, "cannot start a thread ({}); raise the limit ({})",
                  error.code().message(), limit_of_threads());
  } catch (const std::bad_alloc&) {
    thread = Unexpected(Error{ErrorCode::exhausted, "out of memory"});
  }
  if (thread) name_and_widen(*thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

void join(std::thread& thread) {
  if (ThreadTurns* const turns = ThreadTurns::current()) turns->await_end(thread.get_id());
  thread.join();
}

void sleep_for(Nanoseconds time) {
  if (ThreadTurns* const turns = ThreadTurns::current()) return turns->sleep(time);
  std::this_thread::sleep_for(time);
}

const char* limit_of_threads() {
  // The C library's own default. A stack is mapped together with its guard, so space for the stack
  // alone is not enough.
  std::size_t bytes = 8 << 20;
  std::size_t guard = 4 << 10;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
  }
  bytes += guard;
  void* const stack = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return "ulimit -v";
  munmap(stack, bytes);
  return "ulimit -u, or pids.max of its control group";
}

Nanoseconds thread_cpu() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + Nanoseconds{used.tv_nsec};
}

}  // namespace headrace
