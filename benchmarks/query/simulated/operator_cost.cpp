// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/simulated/operator_cost.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "benchmarks/query/queries.h"
#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/random.h"

namespace headrace {
namespace {

// Rows of a chunk: the columns of q1, 12 bytes a row, take 768 KiB.
constexpr std::uint64_t kRows = 1 << 16;
constexpr unsigned kRuns = 64;

#if defined(__AVX512F__)
constexpr double kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr double kVectorBytes = 32;
#else
constexpr double kVectorBytes = 16;  // SSE2 and NEON
#endif

double measure_cycles_per_second() {
  // Rotations, a cycle each: newer cores drop or merge additions of constants.
  constexpr std::uint64_t kRotations = 1 << 20;
  constexpr unsigned kUnrolled = 16;
  auto fastest = Nanoseconds::max();
  for (unsigned run = 0; run < kRuns; ++run) {
    std::uint64_t bits = 0x123456789;
    const Nanoseconds begin = system_clock().now();
    for (std::uint64_t i = 0; i < kRotations / kUnrolled; ++i) {
#pragma GCC unroll 16
      for (unsigned k = 0; k < kUnrolled; ++k) {
        bits = std::rotl(bits, 5);
        asm volatile("" : "+r"(bits));  // keeps each rotation, and their order
      }
    }
    fastest = std::min(fastest, system_clock().now() - begin);
  }
  return static_cast<double>(kRotations) / seconds(fastest);
}

// The columns of lineitem as `bench query` stores them (narrowest widths), with plausible values.
struct Values {
  Column column;
  std::int64_t low;
  std::int64_t high;
};
const std::vector<Values>& lineitem_values() {
  static const std::vector<Values> all = {{{"l_shipdate", 2, 0}, 8036, 10561},
                                          {{"l_returnflag", 1, 0}, 'A', 'R'},
                                          {{"l_linestatus", 1, 0}, 'F', 'O'},
                                          {{"l_quantity", 2, 2}, 100, 5000},
                                          {{"l_extendedprice", 4, 2}, 90'000, 10'494'950},
                                          {{"l_discount", 1, 2}, 0, 10},
                                          {{"l_tax", 1, 2}, 0, 8}};
  return all;
}

std::vector<std::byte> values_of(const Values& values, Random& random) {
  std::vector<std::byte> bytes(kRows * values.column.width);
  const auto range = static_cast<std::uint64_t>(values.high - values.low + 1);
  for (std::uint64_t row = 0; row < kRows; ++row) {
    // Flags and states have two or three values, as in the table.
    std::uint64_t value = static_cast<std::uint64_t>(values.low) + random.below(range);
    if (values.column.name == "l_returnflag") value = std::uint64_t("ANR"[value % 3]);
    if (values.column.name == "l_linestatus") value = std::uint64_t("FO"[value % 2]);
    for (unsigned i = 0; i < values.column.width; ++i) {
      bytes[row * values.column.width + i] = static_cast<std::byte>(value >> (8 * i));
    }
  }
  return bytes;
}

}  // namespace

Result<std::vector<Column>> lineitem_columns_of(const std::string& query) {
  HEADRACE_TRY(const std::vector<std::string> names, query_columns(query));
  std::vector<Column> columns;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(lineitem_values(), name,
                                         [](const Values& one) { return one.column.name; });
    columns.push_back(found->column);
  }
  return columns;
}

Result<OperatorCost> measure_operators(const std::string& query) {
  HEADRACE_TRY(const QueryDefinition* definition, find_query(query));
  HEADRACE_TRY(const std::vector<Column> columns, lineitem_columns_of(query));
  Random random(1);
  std::vector<std::vector<std::byte>> data;
  for (const Column& column : columns) {
    data.push_back(values_of(*std::ranges::find(lineitem_values(), column.name,
                                                [](const Values& one) { return one.column.name; }),
                             random));
  }
  HEADRACE_TRY(const auto pipeline, definition->make(columns, kRows * kRuns));
  OperatorCost cost{.cycles_per_second = measure_cycles_per_second(), .vector_bytes = kVectorBytes};
  std::vector<Nanoseconds> fastest(columns.size(), Nanoseconds::max());
  for (unsigned run = 0; run < kRuns; ++run) {
    std::vector<ColumnSlice> slices;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      slices.push_back({data[i], columns[i].width});
      const Nanoseconds begin = system_clock().now();
      HEADRACE_TRY_STATUS(pipeline->consume(slices));
      fastest[i] = std::min(fastest[i], system_clock().now() - begin);
    }
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double cycles = seconds(std::max(fastest[i], Nanoseconds{1})) * cost.cycles_per_second;
    cost.columns.push_back({.column = columns[i].name,
                            .bytes_per_cycle = static_cast<double>(data[i].size()) / cycles});
  }
  return cost;
}

}  // namespace headrace
