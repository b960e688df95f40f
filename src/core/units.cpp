// SPDX-License-Identifier: Apache-2.0
#include "headrace/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>

namespace headrace {
namespace {

// The value in the largest of `units` of which it is 1 or more, `step` of each being one of the
// next; at most `decimals(value)` decimals, none that is zero: "1.5 MiB", "64 GB/s".
template <std::size_t N, class Decimals>
std::string in_unit(double value, const std::array<std::string_view, N>& units, double step,
                    Decimals decimals) {
  std::size_t unit = 0;
  const auto rounded = [&] {
    const double scale = std::pow(10, decimals(value));
    return std::round(value * scale) / scale;
  };
  // 999.96 of a unit would be printed as 1000 of it.
  while (rounded() >= step && unit + 1 < N) value /= step, ++unit;
  return fmt::format("{} {}", rounded(), units[unit]);
}

}  // namespace

std::string to_string(Bytes bytes) {
  constexpr std::array<std::string_view, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                      "TiB", "PiB", "EiB"};
  return in_unit(static_cast<double>(bytes.value), kUnits, 1024, [](double) { return 1; });
}

std::string to_string(BytesPerSecond rate) {
  constexpr std::array<std::string_view, 5> kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  // Three digits, which is what a measurement is good for.
  return in_unit(rate.value, kUnits, 1000, [](double value) {
    return value < 10 ? 2 : value < 100 ? 1 : 0;
  });
}

}  // namespace headrace
