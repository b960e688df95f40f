// SPDX-License-Identifier: Apache-2.0
// The request distributions of YCSB (Cooper et al., SoCC '10), drawn as its core does, so that our
// figures are comparable with YCSB's. Single-thread.
//
// Not exact. The method of Gray et al. (SIGMOD '94), which YCSB uses, draws the first two ranks by
// Zipf's law and the others by an approximation; keys_test.cpp shows its error. Nothing loops over
// the records, so a billion of them cost no time.
#pragma once

#include <cstdint>

#include "headrace/random.h"

namespace headrace::kv_bench {

// YCSB's exponent. Its scrambled generator draws ranks of this many items, for any number of
// records, with the sum kYcsbZeta computed in advance.
inline constexpr double kYcsbExponent = 0.99;
inline constexpr std::uint64_t kYcsbItems = 10'000'000'000;
inline constexpr double kYcsbZeta = 26.46902820178302;

// The sum of 1 / i^exponent for i from 1 to n: 1000 terms, then Euler-Maclaurin; within 1e-11.
// Requires: 0 < exponent < 1.
double zeta(std::uint64_t n, double exponent);

// 64-bit FNV-1a over the eight bytes of a number, lowest first (Fowler, Noll, Vo).
std::uint64_t fnv1a(std::uint64_t value);

// Ranks from 0; rank 0 is the most frequent. Requires: n > 1.
class ZipfRanks {
 public:
  explicit ZipfRanks(std::uint64_t n, double exponent = kYcsbExponent);

  std::uint64_t draw(Random& random) const { return at(random.unit()); }
  // The rank of a number in [0, 1); monotonic.
  std::uint64_t at(double unit) const;
  // The share of draws with ranks below this one: the inverse of at().
  double below(std::uint64_t rank) const;
  // Adds one rank, at the cost of one term.
  void grow();
  std::uint64_t count() const { return n_; }

 private:
  void tune();

  std::uint64_t n_;
  double exponent_;
  double zeta_;
  double eta_ = 0;
};

// Zipf's law over records, with frequent ones scattered by a hash.
class ScrambledKeys {
 public:
  // Requires: records > 0.
  explicit ScrambledKeys(std::uint64_t records) : records_(records) {}
  std::uint64_t draw(Random& random) const { return record_of(ranks_.draw(random)); }
  std::uint64_t record_of(std::uint64_t rank) const;

 private:
  ZipfRanks ranks_{kYcsbItems};
  std::uint64_t records_;
};

// Zipf's law over the age of records: the newest is the most frequent.
class LatestKeys {
 public:
  // Requires: records > 1.
  explicit LatestKeys(std::uint64_t records) : ages_(records) {}
  std::uint64_t draw(Random& random) const { return ages_.count() - 1 - ages_.draw(random); }
  // Returns the inserted record.
  std::uint64_t insert() { return ages_.grow(), ages_.count() - 1; }

 private:
  ZipfRanks ages_;
};

}  // namespace headrace::kv_bench
