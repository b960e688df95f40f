// SPDX-License-Identifier: Apache-2.0
#include "profile/between_runs.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

namespace headrace::between_runs {
namespace {

// Variance of logarithms that agree to 0.1 %. No clock or counter is better. Smaller values would
// make rows that agree exactly by chance appear certain.
constexpr double kLeastVariance = 1e-6;
// From this number of degrees of freedom on, a prior counts as known.
constexpr double kKnown = 1e6;

// First and second derivatives of log Gamma, by their asymptotic series, from x = 8 on.
double digamma(double x) {
  double sum = 0;
  for (; x < 8; ++x) sum -= 1 / x;
  const double square = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x - square * (1.0 / 12 - square * (1.0 / 120 - square / 252));
}

double trigamma(double x) {
  double sum = 0;
  for (; x < 8; ++x) sum += 1 / (x * x);
  const double inverse = 1 / x, square = inverse * inverse;
  return sum + inverse + square / 2 +
         inverse * square * (1.0 / 6 - square * (1.0 / 30 - square / 42));
}

// The x with trigamma(x) = y; trigamma falls from infinity to 0.
double inverse_trigamma(double y) {
  double low = 1e-3, high = kKnown;
  for (int i = 0; i < 100; ++i) {
    const double middle = std::sqrt(low * high);
    (trigamma(middle) > y ? low : high) = middle;
  }
  return low;
}

// The distribution of the variances: a scaled inverse chi-square with `freedom`.
Variance prior_of(const std::vector<Variance>& known) {
  std::vector<double> logs;
  double by_chance = 0;  // variance of their logarithms if all are equal
  for (const Variance& each : known) {
    const double half = each.freedom / 2;
    logs.push_back(std::log(std::max(each.value, kLeastVariance)) - digamma(half) + std::log(half));
    by_chance += trigamma(half);
  }
  const auto count = static_cast<double>(logs.size());
  const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / count;
  double squares = 0;
  for (const double log : logs) squares += (log - mean) * (log - mean);
  const double excess = count < 2 ? 0 : squares / (count - 1) - by_chance / count;
  const double half = excess > 0 ? inverse_trigamma(excess) : kKnown;
  return {.value = std::exp(mean + digamma(half) - std::log(half)), .freedom = 2 * half};
}

}  // namespace

Variance pooled(std::span<const std::vector<double>> sides) {
  double squares = 0;
  double freedom = 0;
  for (const std::vector<double>& side : sides) {
    const double mean =
        std::accumulate(side.begin(), side.end(), 0.0) / static_cast<double>(side.size());
    for (const double value : side) squares += (value - mean) * (value - mean);
    freedom += static_cast<double>(side.size()) - 1;
  }
  return {.value = freedom > 0 ? squares / freedom : 0, .freedom = freedom};
}

std::vector<Variance> moderated(std::span<const Variance> own) {
  std::vector<Variance> known;
  double most = 0;  // the largest of them
  for (const Variance& each : own) {
    if (each.freedom > 0) known.push_back(each);
    most = std::max(most, each.freedom);
  }
  std::vector<Variance> result(own.begin(), own.end());
  if (known.empty()) return result;
  const Variance prior = prior_of(known);
  for (Variance& each : result) {
    const double freedom = each.freedom + prior.freedom;
    const double value = std::max(each.value, kLeastVariance);
    each.value = (each.freedom * value + prior.freedom * prior.value) / freedom;
    // Rows are not independent: a slow run is slow in many rows. So all other rows count only as
    // much as one more row.
    each.freedom = std::min(freedom, each.freedom + most);
  }
  return result;
}

double two_sided_z(double p) {
  const double t = std::sqrt(-2 * std::log(p / 2));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

double two_sided_t(double p, double freedom) {
  if (freedom < 2) return 1 / std::tan(std::numbers::pi * p / 2);
  if (freedom < 3) return std::sqrt(2 / (p * (2 - p)) - 2);
  const double z = two_sided_z(p);
  const double scale = (freedom - 1.5) / ((freedom - 1) * (freedom - 1));
  return std::sqrt(freedom * std::expm1(z * z * scale));
}

}  // namespace headrace::between_runs
