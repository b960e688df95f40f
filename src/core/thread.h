// The library's own threads, which serve and are not the user's; what a thread has used.
// Thread-safe.
#pragma once

#include <functional>
#include <thread>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// A thread that takes no signals but for faults of its own (SIGBUS), so that handlers (Ctrl-C) run
// in the user's threads, and that may run where the first thread of the process may, if that is
// more than the one that starts it. ps and top show it as `name` (at most 15 characters).
// It can throw however little memory is left. exhausted: the system gives no more threads.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

// CPU time of the calling thread.
Nanoseconds thread_cpu();

}  // namespace headrace
