// SPDX-License-Identifier: Apache-2.0
// Which block comes next: numbers drawn before anything is timed. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/random.h"

namespace headrace::cache_bench {

using Draws = std::vector<std::uint32_t>;

// `count` numbers, each below `n` equally likely. Requires: n > 0.
Draws uniform(Random& random, std::uint64_t n, std::uint64_t count);

// By Zipf's law over n ranks: the k-th is drawn in proportion to 1 / k^exponent (Gray et al.,
// SIGMOD '94, take 0.99). Which number has which rank is drawn from `ranks`, so that those often
// drawn do not lie together; the same seed gives all threads the same ranks. Requires: n > 0.
Draws zipf(Random& random, std::uint64_t ranks, std::uint64_t n, double exponent,
           std::uint64_t count);

}  // namespace headrace::cache_bench
