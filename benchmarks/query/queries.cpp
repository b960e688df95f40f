// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/queries.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <optional>

#include "benchmarks/query/decimal.h"
#include "benchmarks/query/filter_sum.h"
#include "benchmarks/query/pricing_summary.h"
#include "core/fail.h"

namespace headrace {
namespace {

using std::chrono::sys_days;
using std::chrono::year;

// Dates are days since 1970-01-01, as in Parquet and DuckDB.
constexpr std::int64_t days(sys_days date) { return date.time_since_epoch().count(); }
constexpr std::int64_t k1994 = days(year{1994} / 1 / 1);
constexpr std::int64_t k1995 = days(year{1995} / 1 / 1);
// 90 days before 1998-12-01: TPC-H's validation value for DELTA of Q1.
constexpr std::int64_t kQ1Last = days(sys_days{year{1998} / 12 / 1}) - 90;

Result<std::unique_ptr<Pipeline>> make_sum(std::span<const Column> columns, std::uint64_t rows) {
  const Decimal below_fifty{50, 0};
  return FilterSum::make({{.column = 0, .high = below_fifty.at_least(columns[0].scale) - 1}},
                         {.name = "sum_price", .value = 1}, columns, rows);
}

Result<std::unique_ptr<Pipeline>> make_q6(std::span<const Column> columns, std::uint64_t rows) {
  const Decimal low{5, 2};
  const Decimal high{7, 2};
  const Decimal quantity{24, 0};
  return FilterSum::make(
      {{.column = 0, .low = k1994, .high = k1995 - 1},
       {.column = 1, .low = low.at_least(columns[1].scale), .high = high.at_most(columns[1].scale)},
       {.column = 2, .high = quantity.at_least(columns[2].scale) - 1}},
      {.name = "revenue", .value = 3, .factor = 1}, columns, rows);
}

Result<std::unique_ptr<Pipeline>> make_q1(std::span<const Column> columns, std::uint64_t rows) {
  return PricingSummary::make(kQ1Last, columns, rows);
}

const std::vector<QueryDefinition>& definitions() {
  static const std::vector<QueryDefinition> all = {
      {"sum",
       {"l_quantity", "l_extendedprice"},
       1,
       "SELECT SUM(l_extendedprice) AS sum_price FROM lineitem WHERE l_quantity < 50",
       make_sum},
      {"q6",
       {"l_shipdate", "l_discount", "l_quantity", "l_extendedprice"},
       3,
       "SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem"
       " WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'"
       " AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
       make_q6},
      {"q1",
       {"l_shipdate", "l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount",
        "l_tax"},
       1,
       "SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty,"
       " SUM(l_extendedprice) AS sum_base_price,"
       " SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price,"
       " SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,"
       " SUM(l_discount) AS sum_disc, COUNT(*) AS count_order FROM lineitem"
       " WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY"
       " GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
       make_q1},
  };
  return all;
}

}  // namespace

Result<const QueryDefinition*> find_query(const std::string& name) {
  for (const QueryDefinition& query : definitions()) {
    if (query.name == name) return &query;
  }
  return fail(ErrorCode::invalid, "no query '{}'; there are {}", name,
              fmt::join(query_names(), ", "));
}

std::vector<std::string> query_names() {
  std::vector<std::string> names;
  for (const QueryDefinition& query : definitions()) names.push_back(query.name);
  return names;
}

Result<std::vector<std::string>> query_columns(const std::string& query) {
  HEADRACE_TRY(const QueryDefinition* found, find_query(query));
  return found->columns;
}

Result<std::string> query_sql(const std::string& query) {
  HEADRACE_TRY(const QueryDefinition* found, find_query(query));
  return found->sql;
}

}  // namespace headrace
