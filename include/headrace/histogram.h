// SPDX-License-Identifier: Apache-2.0
// Counts durations (or any non-negative integers) in buckets of equal relative width.
//
// There are 16 buckets per power of two: a percentile has an error of at most 1/16 = 6.25 % over
// all 64-bit values. A histogram takes 8 KiB and never allocates. Use it for millions of latencies.
// For a few samples use statistics.h, which is exact.
//
// Recording is Thread-safe and wait-free, with relaxed counters: a reader sees each sample at most
// once, eventually. A read during recording mixes several moments.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

class Histogram {
 public:
  Histogram() = default;
  Histogram(const Histogram& other);
  Histogram& operator=(const Histogram& other);

  void record(std::uint64_t value);
  // Adds the counts of another histogram, bucket by bucket.
  void add(const Histogram& other);
  void clear();

  std::uint64_t count() const;
  // The upper edge of the bucket of the q-quantile, 0 <= q <= 1: at most 6.25 % above the quantile,
  // never below. Nothing: the histogram is empty.
  std::optional<std::uint64_t> quantile(double q) const;

  static constexpr int kBucketsPerOctave = 16;
  static constexpr int kBuckets = kBucketsPerOctave * 61;
  // Values 0..15 have a bucket each. For larger values the four bits below the leading one choose
  // it.
  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t upper_edge(std::size_t bucket);

 private:
  std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
};

}  // namespace HEADRACE_API headrace
