// SPDX-License-Identifier: Apache-2.0
// The library's own threads, as opposed to the user's, and the CPU time of a thread. Thread-safe.
#pragma once

#include <functional>
#include <thread>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// Starts a thread:
// - It receives only signals that it causes (SIGBUS), so handlers (Ctrl-C) run in user threads.
// - It may run on the CPUs of the process's first thread, if these are more than its creator's.
// - Its sleeps end without the kernel's timer slack.
// - ps and top show `name` (at most 15 characters).
// - It can throw even without free memory.
//
// A thread of a scheduler (core/turns/turns.h) starts threads of the same scheduler.
//
// Errors: exhausted: the system allows no more threads.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

// Waits for the end of a thread, in virtual time too. Requires: joinable.
void join(std::thread& thread);

// Sleeps at least `time`, in virtual time too.
void sleep_for(Nanoseconds time);

// The limit that just prevented a thread from starting, in words of the shell. The system reports
// the same error for the number of threads (-u, or pids of the control group) and for address space
// for stacks (-v), so this function tries to map a stack.
const char* limit_of_threads();

// CPU time of the calling thread.
Nanoseconds thread_cpu();

}  // namespace headrace
