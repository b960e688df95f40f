// SPDX-License-Identifier: Apache-2.0
// Exact fixed-point numbers as text, the parts of an answer. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

__extension__ using Int128 = __int128;

// 10^n. Requires: n <= 18.
std::int64_t power_of_ten(unsigned n);

// value / 10^scale with exactly `scale` digits after the point: (-12345, 2) -> "-123.45".
std::string decimal_text(Int128 value, unsigned scale);

// sum / (10^scale * count), rounded half away from zero to `digits` digits after the point.
// Averages are printed by this rule, so another engine's sum and count give the same text.
// Requires: count > 0, digits >= scale.
std::string average_text(Int128 sum, unsigned scale, std::uint64_t count, unsigned digits);

// A constant of a query, mantissa / 10^scale, in the units of a column: rounded up or down to the
// next value of the column, so that >= and <= keep their meaning.
struct Decimal {
  std::int64_t mantissa = 0;
  unsigned scale = 0;
  std::int64_t at_least(unsigned column_scale) const;  // smallest column value >= this
  std::int64_t at_most(unsigned column_scale) const;   // largest column value <= this
};

}  // namespace headrace
