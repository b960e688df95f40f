// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/operators.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "core/check.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "column files are little-endian");

// Calls f with a pointer of the column's type.
template <class F>
auto with_type(const ColumnSlice& column, F f) {
  const void* data = column.bytes.data();
  switch (column.width) {
    case 1: return f(static_cast<const std::int8_t*>(data));
    case 2: return f(static_cast<const std::int16_t*>(data));
    case 4: return f(static_cast<const std::int32_t*>(data));
    case 8: return f(static_cast<const std::int64_t*>(data));
    default: check_failed(__FILE__, __LINE__, "column width is 1, 2, 4 or 8");
  }
}

// in_range as -1 or 0, without a branch.
template <class T>
std::int8_t mask_of(T value, T low, T high) {
  const bool inside = (value >= low) & (value <= high);
  return static_cast<std::int8_t>(-static_cast<int>(inside));
}

template <bool kRefine, class T>
void range_loop(const T* values, std::size_t rows, std::int64_t low, std::int64_t high,
                std::int8_t* __restrict selection) {
  using Limits = std::numeric_limits<T>;
  if (low > high || low > Limits::max() || high < Limits::min()) {
    std::fill_n(selection, rows, std::int8_t{0});
    return;
  }
  const T from = static_cast<T>(std::max<std::int64_t>(low, Limits::min()));
  const T to = static_cast<T>(std::min<std::int64_t>(high, Limits::max()));
  for (std::size_t i = 0; i < rows; ++i) {
    const std::int8_t mask = mask_of(values[i], from, to);
    selection[i] = kRefine ? static_cast<std::int8_t>(selection[i] & mask) : mask;
  }
}

// Rows summed in 64 bits before a carry to 128 bits: products of up to 6 bytes of factors are below
// 2^46, so 2^16 of them are below 2^62.
constexpr std::size_t kCarryRows = std::size_t{1} << 16;
constexpr std::size_t kNarrowBytes = 6;

// Sum of f(i) over [0, rows), where |f(i)| < 2^46 if kNarrow.
template <bool kNarrow, class F>
Int128 exact_sum(std::size_t rows, F f) {
  Int128 total = 0;
  if constexpr (kNarrow) {
    for (std::size_t first = 0; first < rows; first += kCarryRows) {
      const std::size_t last = std::min(rows, first + kCarryRows);
      std::int64_t sum = 0;
      for (std::size_t i = first; i < last; ++i) sum += f(i);
      total += sum;
    }
  } else {
    for (std::size_t i = 0; i < rows; ++i) total += f(i);
  }
  return total;
}

}  // namespace

void select_range(const ColumnSlice& column, std::int64_t low, std::int64_t high,
                  Selection& selection) {
  selection.resize(column.rows());
  with_type(column, [&](const auto* values) {
    range_loop<false>(values, column.rows(), low, high, selection.data());
  });
}

void refine_range(const ColumnSlice& column, std::int64_t low, std::int64_t high,
                  Selection& selection) {
  CHECK(selection.size() == column.rows());
  with_type(column, [&](const auto* values) {
    range_loop<true>(values, column.rows(), low, high, selection.data());
  });
}

Int128 sum_selected(const ColumnSlice& column, const Selection& selection) {
  CHECK(selection.size() == column.rows());
  const std::int8_t* mask = selection.data();
  return with_type(column, [&](const auto* values) {
    using T = std::remove_cvref_t<decltype(*values)>;
    return exact_sum<sizeof(T) <= kNarrowBytes>(column.rows(), [=](std::size_t i) {
      return std::int64_t{static_cast<T>(values[i] & static_cast<T>(mask[i]))};
    });
  });
}

Int128 sum_products_selected(const ColumnSlice& a, const ColumnSlice& b,
                             const Selection& selection) {
  CHECK(selection.size() == a.rows() && selection.size() == b.rows());
  const std::int8_t* mask = selection.data();
  return with_type(a, [&](const auto* left) {
    return with_type(b, [&](const auto* right) {
      using A = std::remove_cvref_t<decltype(*left)>;
      constexpr bool kNarrow = sizeof(*left) + sizeof(*right) <= kNarrowBytes;
      using Wide = std::conditional_t<kNarrow, std::int64_t, Int128>;
      return exact_sum<kNarrow>(a.rows(), [=](std::size_t i) {
        return Wide{static_cast<A>(left[i] & static_cast<A>(mask[i]))} * Wide{right[i]};
      });
    });
  });
}

void widen(const ColumnSlice& column, std::size_t first, std::size_t count, std::int64_t* out) {
  CHECK(first + count <= column.rows());
  with_type(column, [&](const auto* values) {
    for (std::size_t i = 0; i < count; ++i) out[i] = std::int64_t{values[first + i]};
  });
}

}  // namespace headrace
