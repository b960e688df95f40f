#include "core/thread.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <new>
#include <system_error>
#include <utility>

#include "core/affinity.h"
#include "core/fail.h"

namespace headrace {

namespace {

void name_and_widen(std::thread& thread, const char* name) {
  pthread_setname_np(thread.native_handle(), name);
  try {
    const auto widest = allowed_cpus(getpid());
    if (widest.size() > allowed_cpus().size()) pin(thread.native_handle(), widest);
  } catch (const std::bad_alloc&) {
    // Without memory it runs where its starter may.
  }
}

}  // namespace

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // What a thread causes itself must come to it: blocked, it kills the process past its handler.
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    thread = fail(ErrorCode::exhausted, "cannot start a thread ({}); raise the limit (ulimit -u)",
                  error.code().message());
  } catch (const std::bad_alloc&) {
    thread = std::unexpected<Error>(Error{ErrorCode::exhausted, "out of memory"});
  }
  if (thread) name_and_widen(*thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

Nanoseconds thread_cpu() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + Nanoseconds{used.tv_nsec};
}

}  // namespace headrace
