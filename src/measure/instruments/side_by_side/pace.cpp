// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/pace.h"

#include <cmath>

namespace headrace::instruments {
namespace {

constexpr double kNearEnough = 0.03;  // of full bandwidth
constexpr double kSamePause = 1.1;
constexpr Nanoseconds kShortest{1};

Nanoseconds between(Nanoseconds low, Nanoseconds high) {
  return Nanoseconds{static_cast<std::int64_t>(
      std::sqrt(static_cast<double>(low.count()) * static_cast<double>(high.count())))};
}

}  // namespace

Result<double> Pace::at(Nanoseconds pause, const Rate& rate) {
  if (const auto known = seen_.find(pause); known != seen_.end()) return known->second;
  HEADRACE_TRY(const double reached, rate(pause));
  seen_[pause] = reached;
  return reached;
}

Result<Nanoseconds> Pace::for_share(double share, const Rate& rate) {
  HEADRACE_TRY(const double most, at(Nanoseconds{0}, rate));
  if (share >= 1) return Nanoseconds{0};
  HEADRACE_TRY(const double least, at(kLongest, rate));
  if (least >= share * most) return kLongest;
  Nanoseconds low = kShortest;
  Nanoseconds high = kLongest;
  // Rates found for other shares narrow the interval.
  for (const auto& [pause, reached] : seen_) {
    if (reached >= share * most && pause > low) low = pause;
  }
  for (const auto& [pause, reached] : seen_) {
    if (reached < share * most && pause > low) {
      high = pause;
      break;
    }
  }
  while (static_cast<double>(high.count()) > kSamePause * static_cast<double>(low.count())) {
    const Nanoseconds middle = between(low, high);
    if (middle <= low || middle >= high) break;
    HEADRACE_TRY(const double reached, at(middle, rate));
    if (std::abs(reached - share * most) <= kNearEnough * most) return middle;
    (reached > share * most ? low : high) = middle;
  }
  return high;
}

}  // namespace headrace::instruments
