// SPDX-License-Identifier: Apache-2.0
// A small lineitem on the disk and its answers by plain loops, for the tests of this folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/query/decimal.h"
#include "benchmarks/query/query.h"

namespace headrace::test {

// A temporary directory, removed at the end.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "headrace-query-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The columns with their widths and scales, as data preparation makes them.
inline const std::vector<Column>& lineitem_columns() {
  static const std::vector<Column> columns = {
      {"l_shipdate", 2, 0}, {"l_returnflag", 1, 0},    {"l_linestatus", 1, 0},
      {"l_quantity", 2, 2}, {"l_extendedprice", 4, 2}, {"l_discount", 1, 2},
      {"l_tax", 1, 2},
  };
  return columns;
}

class Lineitem {
 public:
  // Rows of plausible values from a fixed seed, written to `directory`.
  Lineitem(const std::filesystem::path& directory, std::size_t rows) : rows_(rows) {
    std::mt19937_64 random(7);
    const auto between = [&](int low, int high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    for (std::size_t i = 0; i < rows; ++i) {
      values_["l_shipdate"].push_back(between(8000, 10600));
      values_["l_returnflag"].push_back("ANR"[between(0, 2)]);
      values_["l_linestatus"].push_back("FO"[between(0, 1)]);
      values_["l_quantity"].push_back(100 * between(1, 50));
      values_["l_extendedprice"].push_back(between(90'000, 10'494'950));
      values_["l_discount"].push_back(between(0, 10));
      values_["l_tax"].push_back(between(0, 8));
    }
    std::vector<std::string> columns;
    for (const Column& column : lineitem_columns()) {
      columns.push_back(fmt::format(R"({{"name":"{}","width":{},"scale":{}}})", column.name,
                                    column.width, column.scale));
      write_column(directory, column);
    }
    write_file(directory / "table.json",
               fmt::format(R"({{"schema_version":1,"rows":{},"columns":[{}]}})", rows,
                           fmt::join(columns, ",")));
  }

  Answer answer(const std::string& query) const {
    if (query == "sum") return {{"sum_price"}, {{{}, {decimal_text(sum(), 2)}}}};
    if (query == "q6") return {{"revenue"}, {{{}, {decimal_text(revenue(), 4)}}}};
    return pricing_summary();
  }

 private:
  std::int64_t at(const char* column, std::size_t row) const { return values_.at(column)[row]; }

  void write_column(const std::filesystem::path& directory, const Column& column) {
    std::string bytes(rows_ * column.width, '\0');
    const std::vector<std::int64_t>& values = values_[column.name];
    for (std::size_t i = 0; i < rows_; ++i) {
      std::memcpy(bytes.data() + i * column.width, &values[i], column.width);
    }
    write_file(directory / (column.name + ".bin"), bytes);
  }

  Int128 sum() const {
    Int128 total = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      if (at("l_quantity", i) < 5000) total += at("l_extendedprice", i);
    }
    return total;
  }

  Int128 revenue() const {
    Int128 total = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      const std::int64_t date = at("l_shipdate", i);
      const std::int64_t discount = at("l_discount", i);
      if (date >= 8766 && date < 9131 && discount >= 5 && discount <= 7 &&
          at("l_quantity", i) < 2400) {
        total += at("l_extendedprice", i) * discount;
      }
    }
    return total;
  }

  Answer pricing_summary() const {
    struct Group {
      Int128 sums[5] = {};
      std::uint64_t count = 0;
    };
    std::map<std::string, Group> groups;
    for (std::size_t i = 0; i < rows_; ++i) {
      if (at("l_shipdate", i) > 10471) continue;
      Group& group = groups[{static_cast<char>(at("l_returnflag", i)),
                             static_cast<char>(at("l_linestatus", i))}];
      const std::int64_t price = at("l_extendedprice", i);
      const std::int64_t discounted = price * (100 - at("l_discount", i));
      group.sums[0] += at("l_quantity", i);
      group.sums[1] += price;
      group.sums[2] += discounted;
      group.sums[3] += discounted * (100 + at("l_tax", i));
      group.sums[4] += at("l_discount", i);
      ++group.count;
    }
    Answer answer{{"l_returnflag", "l_linestatus", "sum_qty", "sum_base_price", "sum_disc_price",
                   "sum_charge", "sum_disc", "avg_qty", "avg_price", "avg_disc", "count_order"},
                  {}};
    for (const auto& [key, g] : groups) {
      answer.rows.push_back(
          {{key.substr(0, 1), key.substr(1)},
           {decimal_text(g.sums[0], 2), decimal_text(g.sums[1], 2), decimal_text(g.sums[2], 4),
            decimal_text(g.sums[3], 6), decimal_text(g.sums[4], 2),
            average_text(g.sums[0], 2, g.count, 6), average_text(g.sums[1], 2, g.count, 6),
            average_text(g.sums[4], 2, g.count, 6), std::to_string(g.count)}});
    }
    return answer;
  }

  std::size_t rows_;
  std::map<std::string, std::vector<std::int64_t>> values_;
};

}  // namespace headrace::test
