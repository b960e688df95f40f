// SPDX-License-Identifier: Apache-2.0
// A histogram with many bins over much data: the data is read once in order, the bins are hit at
// random, so it is the bins that want the fast memory.
//
//   histogram [VALUES BINS [DATA_KIND BINS_KIND]]     e.g. 2147483648 1048576 dram hbm
//
// Without arguments it runs small, all where malloc puts it. With -fopenmp each thread counts into
// bins of its own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>

#include "headrace/malloc.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

int most_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

int this_thread() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

struct Free {
  void operator()(void* memory) const { headrace_free(memory); }
};
template <class T>
using Placed = std::unique_ptr<T[], Free>;

template <class T>
Placed<T> place(const char* kind_name, std::size_t count) {
  headrace_kind kind = HEADRACE_DEFAULT;
  if (headrace_parse_kind(kind_name, &kind) != 0) {
    std::fprintf(stderr, "%s is no kind of memory; dram, hbm, cxl, default, ... are\n", kind_name);
    std::exit(2);
  }
  void* const memory = headrace_calloc(kind, count, sizeof(T));
  if (memory == nullptr) {
    std::fprintf(stderr, "%s: %s\n", kind_name, headrace_last_error());
    std::exit(1);
  }
  return Placed<T>(static_cast<T*>(memory));
}

// Value i of the data, in [0, 1), whichever thread makes it (splitmix64).
double value_of(std::uint64_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

void count(std::span<const double> data, std::span<std::uint64_t> bins, std::size_t width) {
#pragma omp parallel
  {
    std::uint64_t* const mine = bins.data() + static_cast<std::size_t>(this_thread()) * width;
#pragma omp for
    for (std::size_t i = 0; i < data.size(); ++i) {
      ++mine[static_cast<std::size_t>(data[i] * static_cast<double>(width))];
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t values = argc > 2 ? std::strtoull(argv[1], nullptr, 10) : 1 << 20;
  const std::size_t width = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1 << 12;
  const std::size_t all_bins = width * static_cast<std::size_t>(most_threads());
  const auto data = place<double>(argc > 4 ? argv[3] : "default", values);
  const auto bins = place<std::uint64_t>(argc > 4 ? argv[4] : "default", all_bins);
#pragma omp parallel for
  for (std::size_t i = 0; i < values; ++i) data[i] = value_of(i);

  const auto begin = std::chrono::steady_clock::now();
  count({data.get(), values}, {bins.get(), all_bins}, width);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;

  const std::uint64_t total = std::accumulate(bins.get(), bins.get() + all_bins, std::uint64_t{0});
  std::printf("%zu values into %zu bins: %.3f s, %.1f million a second\n", values, width,
              taken.count(), static_cast<double>(values) * 1e-6 / taken.count());
  return total == values ? 0 : 1;
}
