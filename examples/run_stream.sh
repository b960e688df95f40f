#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# STREAM on each kind of memory that this machine has: a program that knows nothing of Headrace.
#
#   run_stream.sh [PROGRAM [ARGUMENT]...]
#
# PROGRAM is a STREAM binary of yours; without one a small triad is compiled, for which it takes
# cc. Of an MPI job each rank gets its own tile:
#   mpirun -np 8 headrace run --tile per-rank --on hbm -- ./stream_mpi
set -eu

headrace=${HEADRACE:-headrace}
if [ $# -eq 0 ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cat >"$folder/triad.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(void) {
  enum { kElements = 1 << 22 };
  double *a = calloc(kElements, 8), *b = calloc(kElements, 8), *c = calloc(kElements, 8);
  double best = 1e9;
  if (!a || !b || !c) return 1;
  for (int i = 0; i < kElements; ++i) b[i] = 1, c[i] = i;
  for (int time = 0; time < 5; ++time) {
    double begin = now();
    for (int i = 0; i < kElements; ++i) a[i] = b[i] + 3 * c[i];
    double taken = now() - begin;
    if (taken < best) best = taken;
  }
  if (a[kElements - 1] != 1 + 3.0 * (kElements - 1)) return 2;
  printf("Triad: %.0f MB/s\n", 3.0 * kElements * 8 / best / 1e6);
  return 0;
}
END
  cc -O2 -o "$folder/triad" "$folder/triad.c"
  set -- "$folder/triad"
fi

for kind in dram hbm cxl; do
  # Strictly there, on the CPUs next to it: what a dry run refuses, this machine does not have.
  if "$headrace" run --dry-run --on $kind --cpus near:$kind -- "$@" 2>/dev/null; then
    echo "$kind:"
    "$headrace" run -v --on $kind --cpus near:$kind -- "$@"
  fi
done
