// SPDX-License-Identifier: Apache-2.0
// The operators of the queries: branch-free loops over whole columns of a chunk, which the compiler
// vectorizes. Sums are exact. Thread-compatible.
//
// A selection is one byte per row, 0 (out) or -1 (in), so that it can be widened to the type of any
// column and used as a bit mask. Its cost does not depend on the number of selected rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "benchmarks/query/decimal.h"

namespace headrace {

// The values of one column in one chunk, as stored in memory.
struct ColumnSlice {
  std::span<const std::byte> bytes;
  unsigned width = 1;
  std::size_t rows() const { return bytes.size() / width; }
};

using Selection = std::vector<std::int8_t>;

// selection[i] = low <= value[i] <= high.
void select_range(const ColumnSlice& column, std::int64_t low, std::int64_t high,
                  Selection& selection);
// selection[i] &= low <= value[i] <= high. Requires: selection.size() == column.rows().
void refine_range(const ColumnSlice& column, std::int64_t low, std::int64_t high,
                  Selection& selection);

// Sum of the selected values.
Int128 sum_selected(const ColumnSlice& column, const Selection& selection);
// Sum of a[i] * b[i] over the selected rows.
Int128 sum_products_selected(const ColumnSlice& a, const ColumnSlice& b,
                             const Selection& selection);

// `count` values from row `first`, as 64-bit numbers. Requires: inside the slice.
void widen(const ColumnSlice& column, std::size_t first, std::size_t count, std::int64_t* out);

// Rows widened at a time: 8 KiB of 64-bit values, a quarter of a first-level cache.
inline constexpr std::size_t kVectorRows = 1024;

}  // namespace headrace
