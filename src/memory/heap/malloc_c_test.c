// SPDX-License-Identifier: Apache-2.0
// headrace/malloc.h as C sees it; called by malloc_test.cpp.

#include "headrace/malloc.h"

#include <errno.h>
#include <string.h>

int headrace_test_from_c(void);

// Returns 0, or the line that failed.
int headrace_test_from_c(void) {
  size_t i;
  headrace_kind kind = HEADRACE_HBM;
  double *a, *b;
  void* aligned = NULL;

  if (headrace_parse_kind("dram", &kind) != 0 || kind != HEADRACE_DRAM) return __LINE__;
  if (headrace_check_available(kind) != 0) return __LINE__;
  a = (double*)headrace_malloc(kind, 1000 * sizeof(double));
  b = (double*)headrace_calloc(HEADRACE_DEFAULT, 1000, sizeof(double));
  if (a == NULL || b == NULL) return __LINE__;
  for (i = 0; i < 1000; ++i) a[i] = (double)i + b[i];
  a = (double*)headrace_realloc(kind, a, 100000 * sizeof(double));
  if (a == NULL || a[999] != 999.0) return __LINE__;
  if (headrace_usable_size(a) < 100000 * sizeof(double)) return __LINE__;
  if (headrace_posix_memalign(kind, &aligned, 4096, 100) != 0) return __LINE__;
  if ((size_t)aligned % 4096 != 0) return __LINE__;
  headrace_free(a);
  headrace_free(b);
  headrace_free(aligned);
  headrace_free(NULL);

  errno = 0;
  if (headrace_malloc(kind, (size_t)1 << 50) != NULL || errno != ENOMEM) return __LINE__;
  if (strlen(headrace_last_error()) == 0) return __LINE__;
  return 0;
}
