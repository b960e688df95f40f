// SPDX-License-Identifier: Apache-2.0
// Block numbers, drawn before anything is timed. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/random.h"

namespace headrace::cache_bench {

using Draws = std::vector<std::uint32_t>;

// `count` numbers, each below `n` with equal probability. Requires: n > 0.
Draws uniform(Random& random, std::uint64_t n, std::uint64_t count);

// `count` numbers below n by Zipf's law: rank k has probability proportional to 1 / k^exponent
// (Gray et al., SIGMOD '94, take 0.99). `ranks` is the seed of the ranks' numbers, so that frequent
// numbers are scattered; the same seed gives all threads the same ranks. Requires: n > 0.
Draws zipf(Random& random, std::uint64_t ranks, std::uint64_t n, double exponent,
           std::uint64_t count);

}  // namespace headrace::cache_bench
