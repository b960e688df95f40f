// SPDX-License-Identifier: Apache-2.0
// The order of accesses: numbers drawn before anything is timed. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/random.h"

namespace headrace::cache_bench {

using Draws = std::vector<std::uint32_t>;

// `count` numbers below `n`, all equally likely. Requires: n > 0.
Draws uniform(Random& random, std::uint64_t n, std::uint64_t count);

// Zipf's law over n ranks: the k-th is drawn in proportion to 1 / k^exponent (Gray et al., SIGMOD
// '94, take 0.99). `ranks` seeds the number of each rank, so that frequent numbers are not
// neighbours. The same seed gives all threads the same ranks. Requires: n > 0.
Draws zipf(Random& random, std::uint64_t ranks, std::uint64_t n, double exponent,
           std::uint64_t count);

}  // namespace headrace::cache_bench
