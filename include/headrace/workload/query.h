// SPDX-License-Identifier: Apache-2.0
// Query-driven prefetching: a scan whose plan says which columns it will need in which order, so
// that the cache can fetch them while the scan computes. In headrace::workload, a library of its
// own.
//
// Columns are files of little-endian fixed-width integers; a query runs over chunks of rows, each
// through the pipeline scan + filter -> aggregate. All arithmetic is exact (integers and
// fixed-point decimals), so answers can be compared for equality with another engine's. It is a
// workload to show and measure the effect, not a query engine. Thread-compatible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/cache.h"
#include "headrace/export.h"
#include "headrace/file.h"
#include "headrace/mover.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// One column: `rows` values of `width` bytes (1, 2, 4 or 8, signed, little-endian), meaning
// value / 10^scale.
struct Column {
  std::string name;
  unsigned width = 4;
  unsigned scale = 0;
};

// A directory of column files, described by its table.json (written by `headrace bench query`).
class Table {
 public:
  Table() = default;
  Table(Table&&) = default;
  Table& operator=(Table&&) = default;

  // absent, denied, invalid (malformed description, a file of the wrong size).
  static Result<Table> open(const Machine& machine, const std::filesystem::path& directory);

  std::uint64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  // absent, with the names there are.
  Result<std::shared_ptr<const File>> file(const std::string& column) const;
  Result<const Column*> column(const std::string& name) const;

 private:
  std::uint64_t rows_ = 0;
  std::vector<Column> columns_;
  std::map<std::string, std::shared_ptr<const File>> files_;
};

// Where the columns come from when the pipeline asks for them.
enum class QueryMode : std::uint8_t {
  resident,  // all columns already in the fast node: the bound
  direct,    // each block read from the slow node when it is needed, then used
  mmap,      // the files mapped; what the operating system gives
  prefetch,  // Headrace: the plan given to the cache, blocks fetched ahead
};

std::string_view to_string(QueryMode mode);
Result<QueryMode> parse_query_mode(std::string_view text);

// One row of an answer: group keys (empty if there are none) and exact values as decimal text.
struct AnswerRow {
  std::vector<std::string> keys;
  std::vector<std::string> values;
  friend bool operator==(const AnswerRow&, const AnswerRow&) = default;
};

struct Answer {
  std::vector<std::string> columns;  // names of keys, then of values
  std::vector<AnswerRow> rows;       // ordered by keys
  friend bool operator==(const Answer&, const Answer&) = default;
};

// Names of the queries: "sum", "q6", "q1".
std::vector<std::string> query_names();
// The columns a query reads, in the order its pipeline needs them; absent lists the queries.
Result<std::vector<std::string>> query_columns(const std::string& query);
// The same query in SQL over a relation called lineitem, for the oracle.
Result<std::string> query_sql(const std::string& query);

// When one block was fetched and used, from the start of the run.
struct BlockTrace {
  std::string column;
  std::uint64_t chunk = 0;
  Bytes bytes;
  std::optional<Nanoseconds> fetch_start;  // nothing: it was there already, or the OS did it
  std::optional<Nanoseconds> fetch_end;
  Nanoseconds wait_start{0};  // the pipeline asks for it
  Nanoseconds wait_end{0};    // and has it
  Nanoseconds use_end{0};     // and is finished with it
};

struct QueryOptions {
  std::string query = "q6";
  QueryMode mode = QueryMode::prefetch;
  Bytes block = 1_MiB;     // of the widest column of a chunk; others scale with their width
  unsigned threads = 1;    // of the pipeline
  NodeId slow;             // where the columns start; a storage node, or a memory node they are
                           // copied to before the clock starts
  NodeId fast;             // where they are wanted
  Bytes budget = 256_MiB;  // of the cache on the fast node
  PrefetchOptions prefetch;
  // Asked before the run and then every 50 ms, only from the thread that called.
  std::function<bool()> stop = [] { return false; };
  // Held until nothing of the run uses the Mover any more, which may be after it has returned (see
  // run_query): whoever shares the Mover and its machine gives their owner here.
  std::shared_ptr<void> keep = {};
};

struct QueryRun {
  Answer answer;
  Nanoseconds time{0};
  Nanoseconds compute{0};  // inside the operators, all threads together
  Nanoseconds waited{0};   // for blocks, all threads together
  Bytes bytes;             // of columns used
  Bytes cached_before;     // in the page cache when the clock started (0 = cold)
  std::optional<CacheStats> cache;
  std::vector<BlockTrace> blocks;
};

// Runs one query once. Makes the page cache cold first where the slow node is a storage node.
// cancelled: `stop` said so. timed_out: nothing came from the slow node for a minute. io: a column
// file could not be read, with its name. unsupported: mmap of a memory node. invalid: nodes,
// threads or blocks that make no sense, columns too wide for exact sums. exhausted: a budget below
// one block, no memory, no thread.
//
// A device that answers nothing cannot be made to let go of the memory it reads into. So the run
// has a thread of its own, which is left behind a second after `stop` or the time-out: it waits for
// the device, then frees what the run used, and lets go of `keep`. Requires: `mover` lives until
// then; the table need not.
Result<QueryRun> run_query(const Table& table, Mover& mover, const QueryOptions& options);

// The time to move the query's bytes from slow to fast with nothing else to do, by the same engine
// in the same block size, as many in flight as the Mover lets through: the floor of the transfer.
// The page cache is made cold first, as for run_query; the memory it takes is bounded. Errors as
// there.
Result<Nanoseconds> measure_transfer_floor(const Table& table, Mover& mover,
                                           const QueryOptions& options);

}  // namespace HEADRACE_API headrace
