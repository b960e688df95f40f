// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/ycsb/keys.h"

#include <algorithm>
#include <cmath>

namespace headrace::kv_bench {
namespace {

constexpr std::uint64_t kSummed = 1000;

}  // namespace

double zeta(std::uint64_t n, double exponent) {
  double sum = 0;
  for (std::uint64_t i = std::min(n, kSummed); i > 0; --i) {
    sum += std::pow(static_cast<double>(i), -exponent);
  }
  if (n <= kSummed) return sum;
  const double a = kSummed, b = static_cast<double>(n);
  const double at_a = std::pow(a, -exponent), at_b = std::pow(b, -exponent);
  const double integral = (b * at_b - a * at_a) / (1 - exponent);
  return sum + integral + (at_b - at_a) / 2 + exponent * (at_a / a - at_b / b) / 12;
}

std::uint64_t fnv1a(std::uint64_t value) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (int byte = 0; byte < 8; ++byte, value >>= 8) hash = (hash ^ (value & 0xFF)) * 0x100000001B3;
  return hash;
}

ZipfRanks::ZipfRanks(std::uint64_t n, double exponent)
    : n_(n), exponent_(exponent), zeta_(zeta(n, exponent)) {
  tune();
}

void ZipfRanks::tune() {
  const double n = static_cast<double>(n_), second = 1 + std::pow(2, -exponent_);
  eta_ = (1 - std::pow(2 / n, 1 - exponent_)) / (1 - second / zeta_);
}

std::uint64_t ZipfRanks::at(double unit) const {
  const double scaled = unit * zeta_;
  if (scaled < 1) return 0;
  if (scaled < 1 + std::pow(2, -exponent_)) return 1;
  const double part = std::pow(eta_ * unit - eta_ + 1, 1 / (1 - exponent_));
  return std::min(static_cast<std::uint64_t>(static_cast<double>(n_) * part), n_ - 1);
}

double ZipfRanks::below(std::uint64_t rank) const {
  if (rank >= n_) return 1;
  if (rank == 0) return 0;
  if (rank == 1) return 1 / zeta_;
  const double part = std::pow(static_cast<double>(rank) / static_cast<double>(n_), 1 - exponent_);
  return std::max((1 + std::pow(2, -exponent_)) / zeta_, (part - 1 + eta_) / eta_);
}

void ZipfRanks::grow() {
  zeta_ += std::pow(static_cast<double>(++n_), -exponent_);
  tune();
}

std::uint64_t ScrambledKeys::record_of(std::uint64_t rank) const {
  // YCSB treats the hash as a signed number and drops its sign.
  const std::uint64_t hash = fnv1a(rank);
  return (hash >> 63 != 0 ? 0 - hash : hash) % records_;
}

}  // namespace headrace::kv_bench
