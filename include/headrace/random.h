// SPDX-License-Identifier: Apache-2.0
// Random numbers from an explicit generator: the same seed gives the same run on every machine.
//
// Not for cryptography. Single-thread: each thread has its own generator, made by `fork()`.
#pragma once

#include <cstdint>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// xoshiro256** 1.0 by Blackman and Vigna (public domain), seeded by SplitMix64 as they recommend.
// Models std::uniform_random_bit_generator.
class Random {
 public:
  using result_type = std::uint64_t;

  explicit Random(std::uint64_t seed);

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()();

  // Uniform in [0, n), without modulo bias (Lemire's multiply-and-reject). Requires: n > 0.
  std::uint64_t below(std::uint64_t n);
  // Uniform in [0, 1).
  double unit() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }
  // An independent stream, for a thread or a part of a test.
  Random fork() { return Random{(*this)()}; }

 private:
  std::uint64_t state_[4];
};

}  // namespace HEADRACE_API headrace
