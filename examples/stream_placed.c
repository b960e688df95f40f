// SPDX-License-Identifier: Apache-2.0
// The four kernels of STREAM with each array in memory of a chosen kind: what does the slower
// memory cost, if only one array is in it?
//
//   stream_placed [ELEMENTS [A B C]]     kinds as in headrace_parse_kind, e.g. hbm dram hbm
//
// Without arguments it runs small, all arrays where malloc puts them. Build with -fopenmp for all
// cores, and start it with OMP_PROC_BIND=spread; where these have more than one node of memory
// take hbm_first_touch dram_first_touch ..., since hbm is the HBM near the thread that allocates.
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "headrace/malloc.h"

enum { kTimes = 5 };

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double* allocate(const char* name, long elements) {
  headrace_kind kind;
  double* array;
  long i;
  if (headrace_parse_kind(name, &kind) != 0) {
    fprintf(stderr, "%s is no kind of memory; dram, hbm, cxl, default, ... are\n", name);
    exit(2);
  }
  array = headrace_malloc(kind, (size_t)elements * sizeof(double));
  if (array == NULL) {
    fprintf(stderr, "%s: %s\n", name, headrace_last_error());
    exit(1);
  }
#pragma omp parallel for
  for (i = 0; i < elements; ++i) array[i] = 1.0;
  return array;
}

static void run(int kernel, double* restrict a, double* restrict b, double* restrict c, long n) {
  const double scalar = 3.0;
  long i;
  switch (kernel) {
    case 0:
#pragma omp parallel for
      for (i = 0; i < n; ++i) c[i] = a[i];
      break;
    case 1:
#pragma omp parallel for
      for (i = 0; i < n; ++i) b[i] = scalar * c[i];
      break;
    case 2:
#pragma omp parallel for
      for (i = 0; i < n; ++i) c[i] = a[i] + b[i];
      break;
    default:
#pragma omp parallel for
      for (i = 0; i < n; ++i) a[i] = b[i] + scalar * c[i];
  }
}

int main(int argc, char** argv) {
  static const char* const names[4] = {"copy", "scale", "add", "triad"};
  static const int arrays[4] = {2, 2, 3, 3};
  const long n = argc > 1 ? atol(argv[1]) : 1L << 18;
  double* const a = allocate(argc > 4 ? argv[2] : "default", n);
  double* const b = allocate(argc > 4 ? argv[3] : "default", n);
  double* const c = allocate(argc > 4 ? argv[4] : "default", n);
  double best[4] = {1e30, 1e30, 1e30, 1e30};
  double expected[3] = {1.0, 1.0, 1.0};
  int time, kernel, good;

  for (time = 0; time < kTimes; ++time) {
    for (kernel = 0; kernel < 4; ++kernel) {
      const double begin = seconds_now();
      run(kernel, a, b, c, n);
      const double taken = seconds_now() - begin;
      if (taken < best[kernel]) best[kernel] = taken;
      run(kernel, &expected[0], &expected[1], &expected[2], 1);
    }
  }
  for (kernel = 0; kernel < 4; ++kernel) {
    const double bytes = (double)arrays[kernel] * (double)n * sizeof(double);
    printf("%-6s %10.1f MB/s\n", names[kernel], bytes / best[kernel] * 1e-6);
  }
  good = a[n - 1] == expected[0] && b[n / 2] == expected[1] && c[0] == expected[2];
  headrace_free(a);
  headrace_free(b);
  headrace_free(c);
  puts(good ? "the right values" : "wrong values");
  return good ? 0 : 1;
}
