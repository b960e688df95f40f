// SPDX-License-Identifier: Apache-2.0
// Query-driven prefetching: a scan declares which columns it will need in which order, so the cache
// fetches them while the scan computes.
//
// Columns are files of little-endian fixed-width integers. A query runs over chunks of rows, each
// through the pipeline scan + filter -> aggregate. All arithmetic is exact (integers and
// fixed-point decimals), so answers can be compared for equality with another engine's. It is a
// workload for measurements, not a query engine. Thread-compatible.
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
#include "headrace/cpus.h"
#include "headrace/file.h"
#include "headrace/mover.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// A column of `rows` values of `width` bytes (1, 2, 4 or 8, signed, little-endian), each meaning
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

  // Errors: absent; denied; invalid: a malformed description, a file of the wrong size.
  static Result<Table> open(const Machine& machine, const std::filesystem::path& directory);

  std::uint64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  // Errors: absent, with a list of the columns.
  Result<std::shared_ptr<const File>> file(const std::string& column) const;
  Result<const Column*> column(const std::string& name) const;

 private:
  std::uint64_t rows_ = 0;
  std::vector<Column> columns_;
  std::map<std::string, std::shared_ptr<const File>> files_;
};

// The source of column data for the pipeline.
enum class QueryMode : std::uint8_t {
  resident,  // all columns already in the fast node: the bound
  direct,    // each block is read from the slow node when needed, then used
  mmap,      // mapped files, paged in by the operating system
  prefetch,  // Headrace: the cache gets the plan and fetches blocks ahead
};

std::string_view to_string(QueryMode mode);

// One row of an answer: group keys (empty without groups) and exact values as decimal text.
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
// The columns of a query, in the order its pipeline needs them. Errors: absent, with a list of the
// queries.
Result<std::vector<std::string>> query_columns(const std::string& query);
// The query in SQL over a relation called lineitem, for the oracle.
Result<std::string> query_sql(const std::string& query);

// Times of one block's fetch and use, from the start of the run.
struct BlockTrace {
  std::string column;
  std::uint64_t chunk = 0;
  Bytes bytes;
  std::optional<Nanoseconds> fetch_start;  // nothing: it was cached, or the OS fetched it
  std::optional<Nanoseconds> fetch_end;
  Nanoseconds wait_start{0};  // the pipeline requests it
  Nanoseconds wait_end{0};    // the pipeline has it
  Nanoseconds use_end{0};     // the pipeline has finished with it
};

// One part of the rows, scanned by CPUs of its own.
struct QueryGroup {
  CpuSet cpus;  // to which its threads are bound
  NodeId slow;  // as in QueryOptions
  NodeId fast;
};

struct QueryOptions {
  std::string query = "q6";
  QueryMode mode = QueryMode::prefetch;
  Bytes block = 1_MiB;  // of the widest column of a chunk; others scale with their width
  // Threads of the pipeline. With `aggregators`, those of its first stage, which filters.
  unsigned threads = 1;
  // Threads of a second stage, which takes filtered chunks and the columns after the filters. 0:
  // there is one stage, and a thread takes all columns of its chunk.
  unsigned aggregators = 0;
  // The initial location of the columns: a storage node, or a memory node to which they are copied
  // before the clock starts.
  NodeId slow;
  NodeId fast;             // the target of fetches
  Bytes budget = 256_MiB;  // of the cache on the fast node
  PrefetchOptions prefetch;
  // The rows are cut into as many parts, which are scanned at the same time: each by `threads` and
  // `aggregators` of its own, with its own cache of `budget`. Empty: one part, by threads on any
  // CPUs, from `slow` to `fast`.
  std::vector<QueryGroup> groups = {};
  // Called before the run and then every 50 ms, only by the calling thread. Returns true to stop.
  std::function<bool()> stop = [] { return false; };
  // Released when the run no longer uses the Mover, which may be after run_query returned (see
  // there). A caller that shares the Mover and its machine puts their owner here.
  std::shared_ptr<void> keep = {};

  // Chunks in progress at most: one for each thread, and with two stages as many between them.
  unsigned slots() const { return aggregators == 0 ? threads : 2 * (threads + aggregators); }
};

struct QueryRun {
  Answer answer;
  Nanoseconds time{0};
  Nanoseconds compute{0};  // inside the operators, all threads together
  Nanoseconds waited{0};   // for blocks, all threads together
  Bytes bytes;             // of columns used
  Bytes cached_before;     // in the page cache at the start of the clock (0 = cold)
  std::optional<CacheStats> cache;
  std::vector<BlockTrace> blocks;
};

// Runs one query once. If the slow node is a storage node, first drops the columns from the page
// cache.
//
// A device that does not answer cannot be forced to release the memory it reads into. So the run
// has its own thread. One second after `stop` or the time-out, the call returns and leaves this
// thread behind: it waits for the device, then frees the run's memory and releases `keep`.
// Requires: `mover` lives until then; the table need not.
// Errors:
// - cancelled: `stop` returned true
// - timed_out: the slow node delivered nothing for a minute
// - io: a column file could not be read; the message names it
// - unsupported: mmap of a memory node
// - invalid: nodes, threads or blocks that make no sense; columns too wide for exact sums
// - unsupported: also a group's CPUs that this process must not use
// - exhausted: a budget below one block; no memory; no thread
Result<QueryRun> run_query(const Table& table, Mover& mover, const QueryOptions& options);

// Measures the least time to move the query's bytes from slow to fast: by the same engine, in
// blocks of the same size, with the Mover's bound of bytes in flight, and without computation. The
// page cache is made cold as for run_query. Memory is bounded. Errors: those of run_query.
Result<Nanoseconds> measure_transfer_floor(const Table& table, Mover& mover,
                                           const QueryOptions& options);

}  // namespace headrace
