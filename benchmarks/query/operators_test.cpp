// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/operators.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>

namespace headrace {
namespace {

// A column of any width, and the same values in a plain vector.
struct TestColumn {
  std::vector<std::byte> bytes;
  unsigned width = 1;
  std::vector<std::int64_t> values;
  ColumnSlice slice() const { return {bytes, width}; }
};

TestColumn make_column(unsigned width, const std::vector<std::int64_t>& raw) {
  TestColumn column{.bytes = std::vector<std::byte>(raw.size() * width), .width = width};
  for (std::size_t i = 0; i < raw.size(); ++i) {
    // The low bytes, as in a file; read back sign-extended.
    std::memcpy(column.bytes.data() + i * width, &raw[i], width);
    const unsigned shift = 64 - 8 * width;
    column.values.push_back(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(raw[i]) << shift) >> shift);
  }
  return column;
}

TestColumn any_column(std::size_t rows) {
  const unsigned width = *rc::gen::element(1u, 2u, 4u, 8u);
  return make_column(width, *rc::gen::container<std::vector<std::int64_t>>(
                                rows, rc::gen::arbitrary<std::int64_t>()));
}

RC_GTEST_PROP(Operators, SelectAsTheNaiveLoop, ()) {
  const auto rows = *rc::gen::inRange<std::size_t>(0, 300);
  const TestColumn column = any_column(rows);
  const auto low = *rc::gen::oneOf(rc::gen::arbitrary<std::int64_t>(),
                                   rc::gen::inRange<std::int64_t>(-200, 200));
  const auto high = *rc::gen::oneOf(rc::gen::arbitrary<std::int64_t>(),
                                    rc::gen::inRange<std::int64_t>(-200, 200));
  Selection selection;
  select_range(column.slice(), low, high, selection);
  Selection refined(rows);
  for (std::size_t i = 0; i < rows; ++i) refined[i] = i % 3 == 0 ? 0 : -1;
  refine_range(column.slice(), low, high, refined);
  RC_ASSERT(selection.size() == rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const bool inside = column.values[i] >= low && column.values[i] <= high;
    RC_ASSERT(selection[i] == (inside ? -1 : 0));
    RC_ASSERT(refined[i] == (inside && i % 3 != 0 ? -1 : 0));
  }
}

RC_GTEST_PROP(Operators, SumAsTheNaiveLoop, ()) {
  const auto rows = *rc::gen::inRange<std::size_t>(0, 300);
  const TestColumn a = any_column(rows);
  TestColumn b = any_column(rows);
  while (a.width + b.width > 12) b = any_column(rows);  // products of 8 + 8 bytes may overflow
  Selection selection;
  for (std::size_t i = 0; i < rows; ++i) selection.push_back(*rc::gen::element<std::int8_t>(0, -1));
  Int128 sum = 0;
  Int128 products = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (selection[i] == 0) continue;
    sum += a.values[i];
    products += static_cast<Int128>(a.values[i]) * b.values[i];
  }
  RC_ASSERT(sum_selected(a.slice(), selection) == sum);
  RC_ASSERT(sum_products_selected(a.slice(), b.slice(), selection) == products);
}

RC_GTEST_PROP(Operators, WidenKeepsValuesAndSigns, ()) {
  const auto rows = *rc::gen::inRange<std::size_t>(1, 100);
  const TestColumn column = any_column(rows);
  const auto first = *rc::gen::inRange<std::size_t>(0, rows);
  std::vector<std::int64_t> out(rows - first);
  widen(column.slice(), first, out.size(), out.data());
  for (std::size_t i = 0; i < out.size(); ++i) RC_ASSERT(out[i] == column.values[first + i]);
}

TEST(Operators, SumsOfExtremesDoNotOverflow) {
  // More rows than are summed in 64 bits at once, each with the largest product of its kind.
  const std::size_t rows = 200'000;
  const TestColumn a =
      make_column(4, std::vector<std::int64_t>(rows, std::numeric_limits<std::int32_t>::min()));
  const TestColumn b =
      make_column(2, std::vector<std::int64_t>(rows, std::numeric_limits<std::int16_t>::min()));
  const Selection all(rows, -1);
  const Int128 n = rows;
  EXPECT_TRUE(sum_products_selected(a.slice(), b.slice(), all) == n << 46);
  EXPECT_TRUE(sum_selected(a.slice(), all) == -(n << 31));
}

}  // namespace
}  // namespace headrace
