// SPDX-License-Identifier: Apache-2.0
// The queries as pipelines over chunks: their columns in order, and the work on each column as soon
// as it has arrived. Thread-compatible.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/query/operators.h"
#include "benchmarks/query/query.h"
#include "headrace/result.h"

namespace headrace {

// A share of a query: takes the columns of a chunk one after another, keeps a partial aggregate,
// and is merged with the others at the end.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  // Takes column `index` of the query's order; `columns` holds it and all earlier ones.
  virtual Status consume(std::span<const ColumnSlice> columns) = 0;
  // Adds another share's partial aggregate of the same query.
  virtual Status merge(const Pipeline& other) = 0;
  virtual Answer answer() const = 0;
};

struct QueryDefinition {
  std::string name;
  std::vector<std::string> columns;  // in the order in which the pipeline needs them
  std::size_t filters = 0;           // the first columns, which only select rows
  std::string sql;
  // Errors: invalid: a column too wide for exact sums over `rows` rows.
  Result<std::unique_ptr<Pipeline>> (*make)(std::span<const Column> columns, std::uint64_t rows);
};

// Errors: invalid: the message lists the queries.
Result<const QueryDefinition*> find_query(const std::string& name);

// Digits after the point of averages; average_text rounds them.
inline constexpr unsigned kAverageDigits = 6;

}  // namespace headrace
