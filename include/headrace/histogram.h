// SPDX-License-Identifier: Apache-2.0
// Counts of durations (or any non-negative integers) in buckets of equal relative width.
//
// Sixteen buckets per power of two: a percentile is read with at most 1/16 = 6.25 % error over the
// whole range of 64 bits, in 8 KiB and without allocating. Use it for latencies counted by the
// million; for a handful of samples use statistics.h, which is exact.
//
// Recording is Thread-safe and wait-free (relaxed counters: a reader sees each sample at most once,
// eventually). Reading while others record gives a mixture of moments.
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
  // The upper edge of the bucket that holds the q-quantile, 0 <= q <= 1: at most 6.25 % above it,
  // never below. Nothing when empty.
  std::optional<std::uint64_t> quantile(double q) const;

  static constexpr int kBucketsPerOctave = 16;
  static constexpr int kBuckets = kBucketsPerOctave * 61;
  // Values 0..15 have a bucket each; above, the four bits below the leading one choose it.
  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t upper_edge(std::size_t bucket);

 private:
  std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
};

}  // namespace HEADRACE_API headrace
