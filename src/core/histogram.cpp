// SPDX-License-Identifier: Apache-2.0
#include "headrace/histogram.h"

#include <bit>
#include <cmath>

#include "core/check.h"

namespace headrace {

// Relaxed everywhere: the counters are independent and order nothing else.
namespace {
constexpr auto kCount = std::memory_order_relaxed;  // pairs with nothing
}

Histogram::Histogram(const Histogram& other) { add(other); }

Histogram& Histogram::operator=(const Histogram& other) {
  if (this == &other) return *this;
  clear();
  add(other);
  return *this;
}

void Histogram::record(std::uint64_t value) { counts_[bucket_of(value)].fetch_add(1, kCount); }

void Histogram::add(const Histogram& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (const auto n = other.counts_[i].load(kCount)) counts_[i].fetch_add(n, kCount);
  }
}

void Histogram::clear() {
  for (auto& count : counts_) count.store(0, kCount);
}

std::uint64_t Histogram::count() const {
  std::uint64_t sum = 0;
  for (const auto& count : counts_) sum += count.load(kCount);
  return sum;
}

std::optional<std::uint64_t> Histogram::quantile(double q) const {
  CHECK(q >= 0 && q <= 1);
  const auto total = count();
  if (total == 0) return std::nullopt;
  const double wanted = std::ceil(q * static_cast<double>(total));
  std::uint64_t seen = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const auto n = counts_[i].load(kCount);
    if (n == 0) continue;
    seen += n;
    last = i;
    if (static_cast<double>(seen) >= wanted) break;
  }
  return upper_edge(last);
}

std::size_t Histogram::bucket_of(std::uint64_t value) {
  if (value < kBucketsPerOctave) return value;
  const int exponent = static_cast<int>(std::bit_width(value)) - 1;  // >= 4
  const auto mantissa = (value >> (exponent - 4)) & (kBucketsPerOctave - 1);
  return static_cast<std::size_t>(exponent - 3) * kBucketsPerOctave + mantissa;
}

std::uint64_t Histogram::upper_edge(std::size_t bucket) {
  CHECK(bucket < kBuckets);
  if (bucket < kBucketsPerOctave) return bucket;
  const auto exponent = static_cast<int>(bucket / kBucketsPerOctave) + 3;
  const std::uint64_t mantissa = bucket % kBucketsPerOctave + kBucketsPerOctave;
  return ((mantissa + 1) << (exponent - 4)) - 1;
}

}  // namespace headrace
