// SPDX-License-Identifier: Apache-2.0
// The CPUs on which threads may run, for machines of any size. (cpu_set_t ends at 1024 CPUs, and a
// larger kernel refuses to fill it.) Thread-safe.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <span>
#include <vector>

namespace headrace {

// The CPUs that a thread may use, in ascending order; empty: the kernel does not report them.
// `thread` is a kernel thread id, 0 the calling thread; a process id means its first thread.
std::vector<unsigned> allowed_cpus(pid_t thread = 0);

// Binds `thread` to `cpus`. False: refused, or `cpus` is empty; the binding is unchanged.
bool pin(pthread_t thread, std::span<const unsigned> cpus);
// The same for the first thread of a process.
bool pin_process(pid_t process, std::span<const unsigned> cpus);

}  // namespace headrace
