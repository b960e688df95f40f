// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "benchmarks/query/query.h"
#include "core/fail.h"
#include "core/text/files.h"
#include "headrace/version.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

// A description has a few hundred bytes; a larger file is something else.
constexpr Bytes kLargestDescription = 1_MiB;
// 10^18 is the largest power of ten in 64 bits.
constexpr std::uint64_t kLargestScale = 18;

Result<std::string> read_description(const std::filesystem::path& path) {
  auto text = read_document(path, kLargestDescription);
  if (!text && text.error().code == ErrorCode::absent) {
    return fail(ErrorCode::absent,
                "no table at {} (no table.json); `headrace bench query` makes one",
                path.parent_path().string());
  }
  return text;
}

Result<std::uint64_t> number(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) {
    return fail(ErrorCode::invalid, "{}: \"{}\" must be a whole number, not {}", where, key,
                it == object.end() ? "absent" : it->type_name());
  }
  return it->get<std::uint64_t>();
}

Result<Column> parse_column(const Json& json, const std::string& where) {
  if (!json.is_object()) return fail(ErrorCode::invalid, "{}: must be an object", where);
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) {
    return fail(ErrorCode::invalid, "{}: \"name\" must be text", where);
  }
  Column column{.name = name->get<std::string>()};
  // The name becomes a file name in the table's directory and must not lead out of it.
  const bool plain = std::ranges::all_of(
      column.name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (column.name.empty() || !plain) {
    return fail(ErrorCode::invalid, "{}: a column's name is letters, digits and underscores",
                where);
  }
  HEADRACE_TRY(const std::uint64_t width, number(json, "width", where));
  HEADRACE_TRY(const std::uint64_t scale, number(json, "scale", where));
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return fail(ErrorCode::invalid, "{}: width {} is not 1, 2, 4 or 8", where, width);
  }
  if (scale > kLargestScale) {
    return fail(ErrorCode::invalid, "{}: scale {} is more than {}", where, scale, kLargestScale);
  }
  column.width = static_cast<unsigned>(width);
  column.scale = static_cast<unsigned>(scale);
  return column;
}

struct Description {
  std::uint64_t rows = 0;
  std::vector<Column> columns;
};

Result<Description> parse_description(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return fail(ErrorCode::invalid, "{} is not a JSON object; make the table again", where);
  }
  HEADRACE_TRY(const std::uint64_t schema, number(json, "schema_version", where));
  if (schema != static_cast<std::uint64_t>(kSchemaVersion)) {
    return fail(ErrorCode::invalid, "{}: schema_version {} is not {}; make the table again", where,
                schema, kSchemaVersion);
  }
  Description table;
  HEADRACE_TRY(table.rows, number(json, "rows", where));
  const auto columns = json.find("columns");
  if (columns == json.end() || !columns->is_array() || columns->empty()) {
    return fail(ErrorCode::invalid, "{}: \"columns\" must be a list with a column in it", where);
  }
  for (std::size_t i = 0; i < columns->size(); ++i) {
    HEADRACE_TRY(Column column,
                 parse_column((*columns)[i], fmt::format("{}: columns[{}]", where, i)));
    if (std::ranges::find(table.columns, column.name, &Column::name) != table.columns.end()) {
      return fail(ErrorCode::invalid, "{}: column {} is there twice", where, column.name);
    }
    table.columns.push_back(std::move(column));
  }
  return table;
}

std::string names(const std::vector<Column>& columns) {
  std::vector<std::string> all;
  for (const Column& column : columns) all.push_back(column.name);
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

Result<Table> Table::open(const Machine& machine, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "table.json";
  HEADRACE_TRY(const std::string text, read_description(path));
  HEADRACE_TRY(Description description, parse_description(text, path.string()));
  Table table;
  table.rows_ = description.rows;
  table.columns_ = std::move(description.columns);
  for (const Column& column : table.columns_) {
    HEADRACE_TRY(std::shared_ptr<const File> file,
                 File::open(machine, directory / (column.name + ".bin")));
    // A division, because a product could overflow with a hostile number of rows.
    const std::uint64_t size = file->size().value;
    if (size % column.width != 0 || size / column.width != table.rows_) {
      return fail(ErrorCode::invalid, "{} has {} bytes, not {} rows of {}; make the table again",
                  file->path().string(), size, table.rows_, column.width);
    }
    table.files_.emplace(column.name, std::move(file));
  }
  return table;
}

Result<std::shared_ptr<const File>> Table::file(const std::string& column) const {
  const auto it = files_.find(column);
  if (it == files_.end()) {
    return fail(ErrorCode::absent, "no column '{}'; the table has {}", column, names(columns_));
  }
  return it->second;
}

Result<const Column*> Table::column(const std::string& name) const {
  const auto it = std::ranges::find(columns_, name, &Column::name);
  if (it == columns_.end()) {
    return fail(ErrorCode::absent, "no column '{}'; the table has {}", name, names(columns_));
  }
  return &*it;
}

}  // namespace headrace
