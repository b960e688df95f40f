// SPDX-License-Identifier: Apache-2.0
#include "headrace/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>

namespace headrace {
namespace {

// At most one decimal, none when it would be zero: "1.5", "64".
std::string short_number(double value) {
  const double rounded = std::round(value * 10) / 10;
  return rounded == std::floor(rounded) ? fmt::format("{:.0f}", rounded)
                                        : fmt::format("{:.1f}", rounded);
}

}  // namespace

std::string to_string(Bytes bytes) {
  constexpr std::array<std::string_view, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                      "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return fmt::format("{} {}", short_number(value), kUnits[unit]);
}

std::string to_string(BytesPerSecond rate) {
  constexpr std::array<std::string_view, 5> kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  double value = rate.value;
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  return fmt::format("{} {}", short_number(value), kUnits[unit]);
}

}  // namespace headrace
