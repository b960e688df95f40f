// SPDX-License-Identifier: Apache-2.0
// The cost of a query's operators, measured on this host and scaled to another. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/query/query.h"
#include "headrace/result.h"

namespace headrace {

// Bytes of a column per cycle of a core that waits for no memory.
struct ColumnCost {
  std::string column;
  double bytes_per_cycle = 0;
};

struct OperatorCost {
  std::vector<ColumnCost> columns;  // in the order of the query
  double cycles_per_second = 0;     // of this host's core while it was measured
  double vector_bytes = 0;          // of the vectors for which these operators were compiled
};

// The columns of a query, as `headrace bench query` stores lineitem.
// Errors: invalid: no such query.
Result<std::vector<Column>> lineitem_columns_of(const std::string& query);

// Runs the operators of a query again and again on columns that fit in the second-level cache, and
// takes the fastest run, since interruptions only add time. Takes about 0.1 s.
// Cycles are those of a chain of dependent additions, one per cycle on all current cores.
// Errors: invalid: no such query.
Result<OperatorCost> measure_operators(const std::string& query);

}  // namespace headrace
