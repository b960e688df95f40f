// SPDX-License-Identifier: Apache-2.0
// malloc, free and related functions in memory of a chosen kind, for C (C99 and later) and for
// programs written for memkind (docs/howto/memkind.md).
//
//     double* values = headrace_malloc(HEADRACE_HBM, count * sizeof(double));  // not zeroed
//     if (values == NULL) fprintf(stderr, "%s\n", headrace_last_error());  // why
//     headrace_free(values);  // of any kind
//
// The first call that needs the machine discovers it, once. Each kind has one heap for the process
// (heap.h). Kinds near a thread have one heap per node with CPUs (shared by some nodes if there are
// more than 64). Heaps open on first use and stay until the process ends: nothing is unmapped while
// threads run at exit. malloc and free themselves are not replaced.
//
// Memory is touched at once, except with HEADRACE_DEFAULT and the first-touch kinds: a sparse 16
// GiB takes 16 GiB. For sparse memory use allocate (buffer.h) with `touch = false`.
//
// On refusal the functions return NULL and set errno to ENOMEM; headrace_last_error returns the
// reason. A child of fork() continues with its copies of all objects, whatever other threads of the
// parent did (docs/design/fork.md).
//
// Thread-safe.
#pragma once

#include <stddef.h>

#define HEADRACE_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// C++ gets a fixed type, so any number from a C program can be checked and refused.
#ifdef __cplusplus
typedef enum headrace_kind : int {
#else
typedef enum headrace_kind {
#endif
  HEADRACE_DEFAULT,  // malloc and free of the C library: any node, by the process's own policy
  // Nodes of one kind: the nearest to the calling thread's CPU; when that is full, the next nearest
  // of the kind. Refused when all are full.
  HEADRACE_DRAM,
  HEADRACE_HBM,
  HEADRACE_CXL,
  // The same, then the nearest of other kinds. HEADRACE_DEFAULT if no node has this kind.
  HEADRACE_DRAM_PREFERRED,
  HEADRACE_HBM_PREFERRED,
  HEADRACE_CXL_PREFERRED,
  HEADRACE_INTERLEAVE,  // pages interleaved over all nodes that CPUs can address
  HEADRACE_FASTEST,     // the kind of the fastest node, as Property::fastest (placement.h)
  HEADRACE_LARGEST,     // the kind of the largest node
  // Nodes of one kind, with pages interleaved over all of them.
  HEADRACE_DRAM_INTERLEAVE,
  HEADRACE_HBM_INTERLEAVE,
  HEADRACE_CXL_INTERLEAVE,
  // Nodes of one kind. Each page of an object of 1 MiB or more is on the node nearest to the first
  // thread that writes it, so threads that fill their parts of an array have them near. For smaller
  // objects this holds only for pages never used before.
  HEADRACE_DRAM_FIRST_TOUCH,
  HEADRACE_HBM_FIRST_TOUCH,
  HEADRACE_CXL_FIRST_TOUCH
} headrace_kind;

// Memory for `size` bytes, aligned for any type and not zeroed. Size 0: a pointer that may be
// freed.
HEADRACE_C_API void* headrace_malloc(headrace_kind kind, size_t size);
// Zeroed memory for `count` objects of `size` bytes.
HEADRACE_C_API void* headrace_calloc(headrace_kind kind, size_t count, size_t size);
// Resizes `pointer`, from any kind or from malloc, to `size` bytes of `kind`. The contents move if
// necessary; memory already of this kind stays near the thread that allocated it. NULL: refused,
// and the object is unchanged; or `size` is 0, and the object was freed.
HEADRACE_C_API void* headrace_realloc(headrace_kind kind, void* pointer, size_t size);
// As posix_memalign: 0, EINVAL (`alignment` is not a power of two, or not a multiple of
// sizeof(void*)) or ENOMEM. Sets `*pointer` only on 0, and never errno.
HEADRACE_C_API int headrace_posix_memalign(headrace_kind kind, void** pointer, size_t alignment,
                                           size_t size);
// Frees an object of any kind or of malloc, or NULL.
HEADRACE_C_API void headrace_free(void* pointer);
// The usable bytes of an object, at least its requested size; 0 for NULL.
HEADRACE_C_API size_t headrace_usable_size(void* pointer);

// 0 if this machine has memory of the kind and this process may use it, else ENOMEM.
HEADRACE_C_API int headrace_check_available(headrace_kind kind);
// Finds a kind by name: "default", "hbm", "hbm_preferred", "fastest", ... Returns 0 or EINVAL.
HEADRACE_C_API int headrace_parse_kind(const char* name, headrace_kind* kind);
// The last refusal of memory to this thread, in one line; "" if there was none. Valid until the
// thread's next call of a function in this header.
HEADRACE_C_API const char* headrace_last_error(void);

#ifdef __cplusplus
}
#endif
