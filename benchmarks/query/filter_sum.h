// SPDX-License-Identifier: Apache-2.0
// Queries with one sum and no groups: ranges on some columns, then the sum of a column or of a
// product over the rows within all ranges (`sum`, `q6`). Thread-compatible.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/query/queries.h"

namespace headrace {

// Rows whose value in `column` (an index in the query's order) is in [low, high].
struct RangeFilter {
  std::size_t column = 0;
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};

struct SumOf {
  std::string name;
  std::size_t value = 0;
  std::optional<std::size_t> factor;
};

class FilterSum final : public Pipeline {
 public:
  // Requires: the sum's value column comes after all filters; its factor is an earlier column.
  static Result<std::unique_ptr<Pipeline>> make(std::vector<RangeFilter> filters, SumOf sum,
                                                std::span<const Column> columns,
                                                std::uint64_t rows);

  Status consume(std::span<const ColumnSlice> columns) override;
  Status merge(const Pipeline& other) override;
  Answer answer() const override;

 private:
  FilterSum(std::vector<RangeFilter> filters, SumOf sum, unsigned scale);

  const std::vector<RangeFilter> filters_;
  const SumOf sum_;
  const unsigned scale_;
  Selection selection_;
  Int128 total_ = 0;
};

}  // namespace headrace
