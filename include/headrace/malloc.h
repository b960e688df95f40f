// SPDX-License-Identifier: Apache-2.0
// malloc, free and their kin in memory of a chosen kind, for C (C99 and later) and for programs
// that were written for memkind (docs/howto/memkind.md).
//
// The machine is discovered once, by the first call that needs it, and each kind has one heap for
// the whole process (heap.h), of the kinds that are near a thread one for each node with CPUs (of
// more than 64 some share), opened when first used and kept until the process ends: nothing is
// unmapped while threads still run at exit. malloc and free themselves are not replaced.
//
// Where memory is refused the functions return NULL and set errno to ENOMEM; headrace_last_error
// says why in words. A child of fork() goes on with its copies of all objects, whatever other
// threads of the parent did (docs/design/fork.md).
//
// Thread-safe.
#pragma once

#include <stddef.h>

#define HEADRACE_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// In C++ of a fixed type, so that any number a C program passes may be looked at, and refused.
#ifdef __cplusplus
typedef enum headrace_kind : int {
#else
typedef enum headrace_kind {
#endif
  HEADRACE_DEFAULT,  // malloc and free of the C library: any node, by the process's own policy
  // Nodes of one kind only: that which is nearest to the CPU of the calling thread; when it is full
  // the next nearest of the kind, and so on; refused when all of them are full.
  HEADRACE_DRAM,
  HEADRACE_HBM,
  HEADRACE_CXL,
  // The same, but then the nearest of other kinds, and HEADRACE_DEFAULT where there are none of it.
  HEADRACE_DRAM_PREFERRED,
  HEADRACE_HBM_PREFERRED,
  HEADRACE_CXL_PREFERRED,
  HEADRACE_INTERLEAVE,  // pages in turn over all nodes that CPUs can address
  HEADRACE_FASTEST,     // the kind of the fastest node, as Property::fastest (placement.h)
  HEADRACE_LARGEST,     // the kind of the largest node
  // Nodes of one kind only, pages in turn over all of them.
  HEADRACE_DRAM_INTERLEAVE,
  HEADRACE_HBM_INTERLEAVE,
  HEADRACE_CXL_INTERLEAVE,
  // Nodes of one kind only: each page of an object of 1 MiB or more on that which is nearest to the
  // thread that writes there first, so that threads which fill their parts of an array have these
  // near. Of smaller objects only where the page was never used before.
  HEADRACE_DRAM_FIRST_TOUCH,
  HEADRACE_HBM_FIRST_TOUCH,
  HEADRACE_CXL_FIRST_TOUCH
} headrace_kind;

// Memory for `size` bytes, aligned for any type and not zeroed; for a size of 0 something that may
// be freed.
HEADRACE_C_API void* headrace_malloc(headrace_kind kind, size_t size);
// Zeroed, for `count` times `size` bytes.
HEADRACE_C_API void* headrace_calloc(headrace_kind kind, size_t count, size_t size);
// `pointer`, of any kind or of malloc, with `size` bytes and of `kind` from now on; its contents
// move if they must. What is of the kind stays near the thread that it was given to. NULL: refused,
// and it stays as it was; or `size` is 0, and it was freed.
HEADRACE_C_API void* headrace_realloc(headrace_kind kind, void* pointer, size_t size);
// As posix_memalign: 0, or EINVAL (`alignment` is not a power of two, or no multiple of
// sizeof(void*)), or ENOMEM; `*pointer` is set only with 0, errno never.
HEADRACE_C_API int headrace_posix_memalign(headrace_kind kind, void** pointer, size_t alignment,
                                           size_t size);
// Whatever kind it is of; also what malloc gave, and NULL.
HEADRACE_C_API void headrace_free(void* pointer);
// The bytes that may be used, at least as many as were asked for; 0 for NULL.
HEADRACE_C_API size_t headrace_usable_size(void* pointer);

// 0 if this machine has memory of the kind and this process may use it, else ENOMEM.
HEADRACE_C_API int headrace_check_available(headrace_kind kind);
// The kind called "default", "hbm", "hbm_preferred", "fastest", ...: 0, or EINVAL.
HEADRACE_C_API int headrace_parse_kind(const char* name, headrace_kind* kind);
// Why memory was last refused to this thread, in one line; "" when it never was. Good until the
// thread's next call of a function in this header.
HEADRACE_C_API const char* headrace_last_error(void);

#ifdef __cplusplus
}
#endif
