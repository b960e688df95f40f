// SPDX-License-Identifier: Apache-2.0
// The CPUs that threads may run on, for machines of any size: cpu_set_t ends at 1024 CPUs, and a
// larger kernel refuses to fill it. Thread-safe.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <span>
#include <vector>

namespace headrace {

// The CPUs that the calling thread, or another by its kernel's number, may use, ascending; empty
// when the kernel does not say. The number of a process is that of its first thread.
std::vector<unsigned> allowed_cpus(pid_t thread = 0);

// Binds `thread` to `cpus`. False: refused, or there are none; the thread runs where it ran.
bool pin(pthread_t thread, std::span<const unsigned> cpus);
// The same for the first thread of a process.
bool pin_process(pid_t process, std::span<const unsigned> cpus);

}  // namespace headrace
