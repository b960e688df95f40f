// SPDX-License-Identifier: Apache-2.0
// The queries as pipelines over chunks: which columns in which order, and what is done with each as
// soon as it is there. Thread-compatible.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/result.h"
#include "headrace/workload/query.h"
#include "workload/query/operators.h"

namespace headrace {

// One worker's share of a query: takes the columns of a chunk one after another, keeps a partial
// aggregate, and is merged with the others at the end.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  // Column `index` of the query's order has come; `columns` holds it and all before it.
  virtual Status consume(std::span<const ColumnSlice> columns) = 0;
  // Adds another worker's partial aggregate of the same query.
  virtual Status merge(const Pipeline& other) = 0;
  virtual Answer answer() const = 0;
};

struct QueryDefinition {
  std::string name;
  std::vector<std::string> columns;  // in the order the pipeline needs them
  std::string sql;
  // invalid: a column too wide for exact sums over `rows` rows.
  Result<std::unique_ptr<Pipeline>> (*make)(std::span<const Column> columns, std::uint64_t rows);
};

// invalid lists the queries.
Result<const QueryDefinition*> find_query(const std::string& name);

// Digits after the point of averages (average_text says how they are rounded).
inline constexpr unsigned kAverageDigits = 6;

}  // namespace headrace
