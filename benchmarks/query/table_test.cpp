// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "benchmarks/query/query.h"
#include "benchmarks/query/table_testing.h"

namespace headrace {
namespace {

using test::Lineitem;
using test::TempDirectory;
using test::write_file;

class TableTest : public testing::Test {
 protected:
  TempDirectory directory_;
  Machine machine_ = Machine::discover({.storage = {directory_.path()}}).value();

  Error error_of(std::string_view description) {
    write_file(directory_.path() / "table.json", description);
    const auto table = Table::open(machine_, directory_.path());
    EXPECT_FALSE(table.has_value());
    return table.has_value() ? Error{} : table.error();
  }
};

TEST_F(TableTest, TellsItsColumns) {
  const Lineitem lineitem(directory_.path(), 100);
  const Table table = Table::open(machine_, directory_.path()).value();
  EXPECT_EQ(table.rows(), 100u);
  ASSERT_EQ(table.columns().size(), 7u);
  EXPECT_EQ(table.columns()[3].name, "l_quantity");
  EXPECT_EQ(table.column("l_quantity").value()->scale, 2u);
  EXPECT_EQ(table.file("l_quantity").value()->size(), 200_B);
}

TEST_F(TableTest, AnUnknownColumnListsThose) {
  const Lineitem lineitem(directory_.path(), 10);
  const Table table = Table::open(machine_, directory_.path()).value();
  const auto missing = table.file("l_comment");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::absent);
  EXPECT_NE(missing.error().message.find("l_shipdate"), std::string::npos);
  EXPECT_EQ(table.column("l_comment").error(), missing.error());
}

TEST_F(TableTest, MissingPartsAreAbsent) {
  EXPECT_EQ(Table::open(machine_, directory_.path()).error().code, ErrorCode::absent);
  EXPECT_EQ(Table::open(machine_, "/no/such/table").error().code, ErrorCode::absent);
  const Lineitem lineitem(directory_.path(), 10);
  std::filesystem::remove(directory_.path() / "l_tax.bin");
  EXPECT_EQ(Table::open(machine_, directory_.path()).error().code, ErrorCode::absent);
}

TEST_F(TableTest, AFileOfTheWrongSizeIsInvalidAndNamed) {
  const Lineitem lineitem(directory_.path(), 10);
  std::filesystem::resize_file(directory_.path() / "l_quantity.bin", 19);
  const auto table = Table::open(machine_, directory_.path());
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().code, ErrorCode::invalid);
  EXPECT_NE(table.error().message.find("l_quantity.bin"), std::string::npos);
}

TEST_F(TableTest, MalformedDescriptionsAreInvalid) {
  const char* const bad[] = {
      "",
      "{",
      "[]",
      R"({"rows":1,"columns":[]})",
      R"({"schema_version":2,"rows":1,"columns":[{"name":"a","width":1,"scale":0}]})",
      R"({"schema_version":1,"rows":-1,"columns":[{"name":"a","width":1,"scale":0}]})",
      R"({"schema_version":1,"rows":1.5,"columns":[{"name":"a","width":1,"scale":0}]})",
      R"({"schema_version":1,"rows":1,"columns":[]})",
      R"({"schema_version":1,"rows":1,"columns":{"name":"a"}})",
      R"({"schema_version":1,"rows":1,"columns":[1]})",
      R"({"schema_version":1,"rows":1,"columns":[{"name":7,"width":1,"scale":0}]})",
      R"({"schema_version":1,"rows":1,"columns":[{"name":"a","width":3,"scale":0}]})",
      R"({"schema_version":1,"rows":1,"columns":[{"name":"a","width":1,"scale":19}]})",
      R"({"schema_version":1,"rows":1,"columns":[{"name":"../a","width":1,"scale":0}]})",
      R"({"schema_version":1,"rows":1,"columns":[{"name":"","width":1,"scale":0}]})",
  };
  for (const char* description : bad) {
    const Error error = error_of(description);
    EXPECT_EQ(error.code, ErrorCode::invalid) << description;
    EXPECT_NE(error.message.find("table.json"), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  }
}

TEST_F(TableTest, AColumnTwiceIsInvalid) {
  write_file(directory_.path() / "a.bin", "x");
  EXPECT_EQ(error_of(R"({"schema_version":1,"rows":1,"columns":[{"name":"a","width":1,"scale":0},
                        {"name":"a","width":1,"scale":0}]})")
                .code,
            ErrorCode::invalid);
}

// Cuts, swaps and replaces bytes of a good description: an error or a table, never a crash.
RC_GTEST_PROP(TableFuzz, DamagedDescriptionsAreHandled, ()) {
  static const TempDirectory directory;
  static const Machine machine = Machine::discover({.storage = {directory.path()}}).value();
  std::string text =
      R"({"schema_version":1,"rows":2,"columns":[{"name":"a","width":2,"scale":0}]})";
  write_file(directory.path() / "a.bin", "1234");
  const auto edits = *rc::gen::inRange(0, 6);
  for (int i = 0; i < edits && !text.empty(); ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const auto skipped = *rc::gen::inRange<std::size_t>(0, 5);
    const auto added =
        *rc::gen::element<std::string>("", "9", "\"", "[", "1e99", "null", "\xff", "{}");
    const std::string rest = at + skipped < text.size() ? text.substr(at + skipped) : "";
    text.resize(at);
    text.append(added).append(rest);
  }
  write_file(directory.path() / "table.json", text);
  const auto table = Table::open(machine, directory.path());
  if (table) {
    RC_ASSERT(table->rows() * table->columns().at(0).width == 4u);
  } else {
    RC_ASSERT(!table.error().message.empty());
    RC_ASSERT(table.error().code != ErrorCode::io);
  }
}

}  // namespace
}  // namespace headrace
