// SPDX-License-Identifier: Apache-2.0
// A query over one table, checked and cut into blocks: chunk by chunk, and column by column in the
// order of the pipeline. Keeps the files open; independent of its table. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/query/queries.h"
#include "benchmarks/query/query.h"

namespace headrace {

// Chunks are multiples of this many rows, so that blocks of every width begin and end on 4 KiB: the
// page size, and the largest block size of a disk.
inline constexpr std::uint64_t kRowAlignment = 4096;

struct QueryScan {
  const QueryDefinition* query = nullptr;
  std::vector<Column> columns;                     // in the pipeline's order
  std::vector<std::shared_ptr<const File>> files;  // columns[i] is in files[i]
  std::uint64_t rows = 0;
  std::uint64_t chunk_rows = kRowAlignment;
  bool slow_is_storage = false;
  // The part of the chunks that is scanned.
  std::uint64_t part = 0;
  std::uint64_t parts = 1;
  std::uint64_t object_chunk = 0;  // the first chunk in the objects that hold columns

  std::uint64_t all_chunks() const { return (rows + chunk_rows - 1) / chunk_rows; }
  std::uint64_t first_chunk() const { return all_chunks() * part / parts; }
  std::uint64_t end_chunk() const { return all_chunks() * (part + 1) / parts; }
  std::uint64_t chunks() const { return end_chunk() - first_chunk(); }
  std::uint64_t rows_of(std::uint64_t chunk) const {
    return std::min(chunk_rows, rows - chunk * chunk_rows);
  }
  // Column `column` of one chunk, in the object that holds the column from `object_chunk` on.
  Extent block(const Object& object, std::size_t column, std::uint64_t chunk) const {
    const std::uint64_t width = columns[column].width;
    return {&object, (chunk - object_chunk) * chunk_rows * width, Bytes{rows_of(chunk) * width}};
  }
  // The bytes of the part in the file of a column.
  Extent in_file(std::size_t column) const {
    const std::uint64_t row_bytes = columns[column].width;
    const std::uint64_t first = std::min(first_chunk() * chunk_rows, rows);
    const std::uint64_t end = std::min(end_chunk() * chunk_rows, rows);
    return {files[column].get(), first * row_bytes, Bytes{(end - first) * row_bytes}};
  }
  Bytes column_bytes(std::size_t column) const { return Bytes{rows * columns[column].width}; }
  Bytes bytes() const;
  Bytes chunk_bytes() const;  // all columns of a full chunk
};

// Errors: absent: no such column or node; invalid: no such query, contradictory options, or files
// on another node than `slow`; exhausted: a budget below one block.
Result<QueryScan> make_scan(const Table& table, const Machine& machine,
                            const QueryOptions& options);

// Drops the columns from the page cache; returns the bytes that remain there.
Result<Bytes> make_cold(const QueryScan& scan);

}  // namespace headrace
