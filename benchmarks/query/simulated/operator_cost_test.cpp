// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/simulated/operator_cost.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(OperatorCost, EachColumn_TakesTime) {
  for (const std::string& query : query_names()) {
    const auto cost = measure_operators(query);
    ASSERT_TRUE(cost.has_value()) << cost.error().message;
    ASSERT_EQ(cost->columns.size(), query_columns(query)->size());
    for (const ColumnCost& one : cost->columns) {
      EXPECT_GT(one.bytes_per_cycle, 0) << query << ' ' << one.column;
    }
    EXPECT_GT(cost->cycles_per_second, 0);
    EXPECT_GE(cost->vector_bytes, 16);
  }
}

TEST(OperatorCost, UnknownQuery_IsInvalid) {
  const auto none = measure_operators("q7");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "no query 'q7'; there are sum, q6, q1");
}

}  // namespace
}  // namespace headrace
