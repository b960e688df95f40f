// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/draws.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace headrace::cache_bench {

Draws uniform(Random& random, std::uint64_t n, std::uint64_t count) {
  Draws draws(count);
  for (std::uint32_t& draw : draws) draw = static_cast<std::uint32_t>(random.below(n));
  return draws;
}

Draws zipf(Random& random, std::uint64_t ranks, std::uint64_t n, double exponent,
           std::uint64_t count) {
  std::vector<double> sums(n);
  double sum = 0;
  for (std::uint64_t k = 0; k < n; ++k) {
    sum += std::pow(static_cast<double>(k + 1), -exponent);
    sums[k] = sum;
  }
  Draws number(n);
  std::iota(number.begin(), number.end(), 0U);
  Random shuffle(ranks);
  for (std::uint64_t k = n; k > 1; --k) std::swap(number[k - 1], number[shuffle.below(k)]);
  Draws draws(count);
  for (std::uint32_t& draw : draws) {
    const auto at = std::lower_bound(sums.begin(), sums.end(), random.unit() * sum);
    draw = number[std::min<std::uint64_t>(static_cast<std::uint64_t>(at - sums.begin()), n - 1)];
  }
  return draws;
}

}  // namespace headrace::cache_bench
