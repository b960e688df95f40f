// For test programs that are not run with TSan: in them a thread is a failure, so that the list of
// their folders (HEADRACE_SINGLE_THREADED in cmake/tests.cmake) stays true.

#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// Stands in front of libc's for the whole program, shared libraries included.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t*, const pthread_attr_t*,
                                                             void* (*)(void*), void*) noexcept {
  std::fputs("a test of this folder starts a thread: take it from HEADRACE_SINGLE_THREADED\n",
             stderr);
  std::abort();
}
