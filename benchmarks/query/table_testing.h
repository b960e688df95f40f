// SPDX-License-Identifier: Apache-2.0
// A small lineitem on the disk and its answers, for the tests of this folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/query/queries.h"
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
      add("l_shipdate", between(8000, 10600));
      add("l_returnflag", "ANR"[between(0, 2)]);
      add("l_linestatus", "FO"[between(0, 1)]);
      add("l_quantity", 100 * between(1, 50));
      add("l_extendedprice", between(90'000, 10'494'950));
      add("l_discount", between(0, 10));
      add("l_tax", between(0, 8));
    }
    std::vector<std::string> columns;
    for (const Column& column : lineitem_columns()) {
      columns.push_back(fmt::format(R"({{"name":"{}","width":{},"scale":{}}})", column.name,
                                    column.width, column.scale));
      write_file(directory / (column.name + ".bin"), bytes_[column.name]);
    }
    write_file(directory / "table.json",
               fmt::format(R"({{"schema_version":1,"rows":{},"columns":[{}]}})", rows,
                           fmt::join(columns, ",")));
  }

  // The answer of one pipeline to all rows in one chunk; queries_test compares pipelines with plain
  // loops.
  Answer answer(const std::string& query) const {
    std::vector<Column> columns;
    std::vector<ColumnSlice> slices;
    const std::vector<std::string> names = query_columns(query).value();
    for (const std::string& name : names) {
      columns.push_back(column_of(name));
      slices.push_back({std::as_bytes(std::span(bytes_.at(name))), columns.back().width});
    }
    const auto pipeline = find_query(query).value()->make(columns, rows_).value();
    for (std::size_t i = 1; i <= slices.size(); ++i) {
      EXPECT_TRUE(pipeline->consume(std::span(slices).first(i)));
    }
    return pipeline->answer();
  }

 private:
  static const Column& column_of(const std::string& name) {
    return *std::ranges::find(lineitem_columns(), name, &Column::name);
  }

  void add(const std::string& name, std::int64_t value) {
    bytes_[name].append(reinterpret_cast<const char*>(&value), column_of(name).width);
  }

  std::size_t rows_;
  std::map<std::string, std::string> bytes_;  // by column
};

}  // namespace headrace::test
