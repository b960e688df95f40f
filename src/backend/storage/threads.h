// Threads of this folder.
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "core/fail.h"

namespace headrace::storage {

// A thread that takes no signals, so that handlers (Ctrl-C) run in the user's threads. exhausted:
// the limit on threads is reached.
template <class Body>
Result<std::thread> start_thread(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    thread = fail(ErrorCode::exhausted, "cannot start a thread ({}); raise the limit (ulimit -u)",
                  error.code().message());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace headrace::storage
