// SPDX-License-Identifier: Apache-2.0
#include "headrace/random.h"

#include <bit>

namespace headrace {

Random::Random(std::uint64_t seed) {
  for (auto& word : state_) {  // SplitMix64 (Steele, Lea and Flood, 2014)
    seed += 0x9e3779b97f4a7c15;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

Random::result_type Random::operator()() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

__extension__ using Wide = unsigned __int128;

std::uint64_t Random::below(std::uint64_t n) {
  const std::uint64_t threshold = -n % n;
  for (;;) {
    const auto product = static_cast<Wide>((*this)()) * n;
    if (static_cast<std::uint64_t>(product) >= threshold) {
      return static_cast<std::uint64_t>(product >> 64);
    }
  }
}

}  // namespace headrace
