// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/decimal.h"

#include <algorithm>

#include "core/check.h"

namespace headrace {

std::int64_t power_of_ten(unsigned n) {
  CHECK(n <= 18);
  std::int64_t power = 1;
  while (n-- > 0) power *= 10;
  return power;
}

std::string decimal_text(Int128 value, unsigned scale) {
  const bool negative = value < 0;
  std::string digits;
  // Digit by digit from the value itself: the magnitude of the smallest value may not fit.
  for (unsigned i = 0; value != 0 || i <= scale; ++i) {
    const int digit = static_cast<int>(value % 10);
    if (i == scale && scale > 0) digits.push_back('.');
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
    value /= 10;
  }
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string average_text(Int128 sum, unsigned scale, std::uint64_t count, unsigned digits) {
  CHECK(count > 0 && digits >= scale);
  const Int128 scaled = sum * power_of_ten(digits - scale);
  const Int128 n = static_cast<Int128>(count);
  const Int128 quotient = scaled / n;
  const Int128 remainder = scaled % n;
  const Int128 twice = (remainder < 0 ? -remainder : remainder) * 2;
  const Int128 away = scaled < 0 ? -1 : 1;
  return decimal_text(twice >= n ? quotient + away : quotient, digits);
}

std::int64_t Decimal::at_least(unsigned column_scale) const {
  if (column_scale >= scale) return mantissa * power_of_ten(column_scale - scale);
  const std::int64_t unit = power_of_ten(scale - column_scale);
  return mantissa / unit + (mantissa % unit > 0 ? 1 : 0);
}

std::int64_t Decimal::at_most(unsigned column_scale) const {
  if (column_scale >= scale) return mantissa * power_of_ten(column_scale - scale);
  const std::int64_t unit = power_of_ten(scale - column_scale);
  return mantissa / unit - (mantissa % unit < 0 ? 1 : 0);
}

}  // namespace headrace
