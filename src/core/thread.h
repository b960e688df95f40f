// SPDX-License-Identifier: Apache-2.0
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
// more than the one that starts it. Its sleeps end without the kernel's timer slack. ps and top
// show it as `name` (at most 15 characters). It can throw however little memory is left. exhausted:
// the system gives no more threads.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

// Which limit it was that kept a thread from being started a moment ago, in words of a shell. The
// system answers alike where a process may have no more threads (-u, or the pids of its control
// group) and where its address space has no room for their stacks (-v): a stack is tried.
const char* limit_of_threads();

// CPU time of the calling thread.
Nanoseconds thread_cpu();

}  // namespace headrace
