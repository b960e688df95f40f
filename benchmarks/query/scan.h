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

  std::uint64_t chunks() const { return (rows + chunk_rows - 1) / chunk_rows; }
  std::uint64_t rows_of(std::uint64_t chunk) const {
    return std::min(chunk_rows, rows - chunk * chunk_rows);
  }
  // Column `column` of one chunk, in an object that holds the whole column.
  Extent block(const Object& object, std::size_t column, std::uint64_t chunk) const {
    const std::uint64_t width = columns[column].width;
    return {&object, chunk * chunk_rows * width, Bytes{rows_of(chunk) * width}};
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
