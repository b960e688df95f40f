// SPDX-License-Identifier: Apache-2.0
#include "core/waiting/duration.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>

namespace headrace {

std::string to_string(Nanoseconds time) {
  struct Unit {
    std::string_view name;
    double next;  // how many of this unit are one of the next
    double from;  // from how many on the next unit is used
  };
  // Nobody says "1.7 min" for 100 s.
  constexpr std::array<Unit, 6> kUnits = {Unit{"ns", 1000, 1000}, Unit{"us", 1000, 1000},
                                          Unit{"ms", 1000, 1000}, Unit{"s", 60, 600},
                                          Unit{"min", 60, 120},   Unit{"h", 0, 0}};
  if (time == Nanoseconds{0}) return "0 s";
  double value = std::abs(static_cast<double>(time.count()));
  std::size_t unit = 0;
  // 999.96 of a unit would be printed as 1000 of it.
  while (unit + 1 < kUnits.size() && std::round(value * 10) / 10 >= kUnits[unit].from) {
    value /= kUnits[unit++].next;
  }
  const double rounded = std::round(value * 10) / 10;
  const auto number = fmt::format("{:.{}f}", rounded, rounded == std::floor(rounded) ? 0 : 1);
  return fmt::format("{}{} {}", time < Nanoseconds{0} ? "-" : "", number, kUnits[unit].name);
}

}  // namespace headrace
