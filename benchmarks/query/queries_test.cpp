// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/queries.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <map>

#include "benchmarks/query/decimal.h"

namespace headrace {
namespace {

// The columns of lineitem that the queries use, as plain numbers.
struct Line {
  std::int64_t shipdate = 0, quantity = 0, price = 0, discount = 0, tax = 0;
  char flag = 'A', status = 'F';
};

const std::map<std::string, Column> kColumns = {
    {"l_shipdate", {"l_shipdate", 2, 0}},
    {"l_quantity", {"l_quantity", 2, 2}},
    {"l_extendedprice", {"l_extendedprice", 4, 2}},
    {"l_discount", {"l_discount", 1, 2}},
    {"l_tax", {"l_tax", 1, 2}},
    {"l_returnflag", {"l_returnflag", 1, 0}},
    {"l_linestatus", {"l_linestatus", 1, 0}},
};

std::int64_t field(const Line& line, const std::string& column) {
  if (column == "l_shipdate") return line.shipdate;
  if (column == "l_quantity") return line.quantity;
  if (column == "l_extendedprice") return line.price;
  if (column == "l_discount") return line.discount;
  if (column == "l_tax") return line.tax;
  return column == "l_returnflag" ? line.flag : line.status;
}

std::vector<Column> columns_of(const std::string& query) {
  std::vector<Column> columns;
  const std::vector<std::string> names = query_columns(query).value();
  for (const std::string& name : names) columns.push_back(kColumns.at(name));
  return columns;
}

// Feeds the lines in chunks to `workers` pipelines in turn and merges them.
Answer run(const std::string& query, const std::vector<Line>& lines, std::size_t chunk,
           std::size_t workers) {
  const std::vector<Column> columns = columns_of(query);
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (std::size_t i = 0; i < workers; ++i) {
    pipelines.push_back(find_query(query).value()->make(columns, lines.size()).value());
  }
  for (std::size_t first = 0, turn = 0; first < lines.size(); first += chunk, ++turn) {
    const std::size_t count = std::min(chunk, lines.size() - first);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<ColumnSlice> slices;
    for (const Column& column : columns) {
      bytes.emplace_back(count * column.width);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t value = field(lines[first + i], column.name);
        std::memcpy(bytes.back().data() + i * column.width, &value, column.width);
      }
      slices.push_back({bytes.back(), column.width});
      EXPECT_TRUE(pipelines[turn % workers]->consume(slices).has_value());
    }
  }
  for (std::size_t i = 1; i < workers; ++i) {
    EXPECT_TRUE(pipelines[0]->merge(*pipelines[i]).has_value());
  }
  return pipelines[0]->answer();
}

std::vector<Line> any_lines() {
  const auto count = *rc::gen::inRange<std::size_t>(0, 60);
  std::vector<Line> lines(count);
  for (Line& line : lines) {
    // Around the limits of the queries, so that every comparison matters.
    line.shipdate = *rc::gen::element<std::int64_t>(8765, 8766, 9000, 9130, 9131, 10471, 10472);
    line.quantity = *rc::gen::element<std::int64_t>(100, 2399, 2400, 2500, 4999, 5000);
    line.price = *rc::gen::inRange<std::int64_t>(-1000, 10'500'000);
    line.discount = *rc::gen::inRange<std::int64_t>(3, 9);
    line.tax = *rc::gen::inRange<std::int64_t>(0, 9);
    line.flag = *rc::gen::element('A', 'N', 'R');
    line.status = *rc::gen::element('F', 'O');
  }
  return lines;
}

RC_GTEST_PROP(Queries, SumsAreThoseOfTheNaiveLoop, ()) {
  const std::vector<Line> lines = any_lines();
  const auto chunk = *rc::gen::inRange<std::size_t>(1, 30);
  const auto workers = *rc::gen::inRange<std::size_t>(1, 4);
  Int128 sum = 0;
  Int128 revenue = 0;
  for (const Line& line : lines) {
    if (line.quantity < 5000) sum += line.price;
    const bool in_1994 = line.shipdate >= 8766 && line.shipdate < 9131;
    if (in_1994 && line.discount >= 5 && line.discount <= 7 && line.quantity < 2400) {
      revenue += line.price * line.discount;
    }
  }
  RC_ASSERT(run("sum", lines, chunk, workers).rows.at(0).values.at(0) == decimal_text(sum, 2));
  RC_ASSERT(run("q6", lines, chunk, workers).rows.at(0).values.at(0) == decimal_text(revenue, 4));
}

RC_GTEST_PROP(Queries, GroupsAreThoseOfTheNaiveLoop, ()) {
  const std::vector<Line> lines = any_lines();
  struct Sums {
    Int128 quantity = 0, price = 0, disc_price = 0, charge = 0, discount = 0;
    std::uint64_t count = 0;
  };
  std::map<std::pair<char, char>, Sums> groups;
  for (const Line& line : lines) {
    if (line.shipdate > 10471) continue;
    Sums& g = groups[{line.flag, line.status}];
    g.quantity += line.quantity;
    g.price += line.price;
    g.disc_price += line.price * (100 - line.discount);
    g.charge += line.price * (100 - line.discount) * (100 + line.tax);
    g.discount += line.discount;
    ++g.count;
  }
  const Answer answer =
      run("q1", lines, *rc::gen::inRange<std::size_t>(1, 30), *rc::gen::inRange<std::size_t>(1, 4));
  RC_ASSERT(answer.rows.size() == groups.size());
  auto row = answer.rows.begin();
  for (const auto& [key, g] : groups) {  // a map is ordered, as the answer must be
    const AnswerRow expected{
        .keys = {std::string(1, key.first), std::string(1, key.second)},
        .values = {decimal_text(g.quantity, 2), decimal_text(g.price, 2),
                   decimal_text(g.disc_price, 4), decimal_text(g.charge, 6),
                   decimal_text(g.discount, 2), average_text(g.quantity, 2, g.count, 6),
                   average_text(g.price, 2, g.count, 6), average_text(g.discount, 2, g.count, 6),
                   std::to_string(g.count)}};
    RC_ASSERT(*row++ == expected);
  }
}

TEST(Queries, LongChunksAreSummedInManyVectors) {
  std::vector<Line> lines(
      10'000, {.shipdate = 9000, .quantity = 100, .price = 10'494'950, .discount = 6, .tax = 8});
  const Answer answer = run("q1", lines, 10'000, 1);
  ASSERT_EQ(answer.rows.size(), 1u);
  EXPECT_EQ(answer.rows[0].values[3], decimal_text(Int128{10'494'950} * 94 * 108 * 10'000, 6));
  EXPECT_EQ(answer.rows[0].values[8], "10000");
}

TEST(Queries, UnknownNamesListWhatThereIs) {
  EXPECT_EQ(query_names(), (std::vector<std::string>{"sum", "q6", "q1"}));
  const auto missing = query_columns("q7");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error(), (Error{ErrorCode::invalid, "no query 'q7'; there are sum, q6, q1"}));
  EXPECT_FALSE(query_sql("q7").has_value());
  for (const std::string& name : query_names()) {
    EXPECT_NE(query_sql(name).value().find("FROM lineitem"), std::string::npos);
  }
}

TEST(Queries, ColumnsTooWideForExactSumsAreRefused) {
  std::vector<Column> q6 = columns_of("q6");
  q6[1].width = 8;
  q6[3].width = 8;
  EXPECT_EQ(find_query("q6").value()->make(q6, 1000).error().code, ErrorCode::invalid);
  std::vector<Column> q1 = columns_of("q1");
  q1[4].width = 8;
  EXPECT_EQ(find_query("q1").value()->make(q1, 1000).error().code, ErrorCode::invalid);
  std::vector<Column> keys = columns_of("q1");
  keys[1].width = 2;
  EXPECT_EQ(find_query("q1").value()->make(keys, 1000).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
