// SPDX-License-Identifier: Apache-2.0
// The functions of the C library that runtime.cpp replaces, for threads outside a schedule.
// Thread-safe.
#pragma once

#include <pthread.h>
#include <time.h>

#include <cstdint>

namespace headrace::explore {

struct Real {
  decltype(&pthread_create) create;
  decltype(&pthread_join) join;
  decltype(&pthread_mutex_lock) lock;
  decltype(&pthread_mutex_trylock) trylock;
  decltype(&pthread_mutex_unlock) unlock;
  decltype(&pthread_cond_wait) wait;
  decltype(&pthread_cond_clockwait) clockwait;
  decltype(&pthread_cond_timedwait) timedwait;
  decltype(&pthread_cond_signal) signal;
  decltype(&pthread_cond_broadcast) broadcast;
  decltype(&clock_gettime) now;
  decltype(&nanosleep) sleep;
  decltype(&clock_nanosleep) clock_sleep;
};
const Real& real();

// As the kernel returns it: -errno on failure.
inline long real_syscall(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

}  // namespace headrace::explore
