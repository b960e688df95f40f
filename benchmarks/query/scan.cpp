// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/scan.h"

#include <algorithm>

#include "core/fail.h"

namespace headrace {
namespace {

Status check_nodes(const Machine& machine, NodeId slow_id, NodeId fast_id) {
  HEADRACE_TRY(const Node* slow, machine.node(slow_id));
  HEADRACE_TRY(const Node* fast, machine.node(fast_id));
  if (!fast->byte_addressable()) {
    return fail(ErrorCode::invalid,
                "node {} ({}) is {}: operators cannot read it; take a memory node", raw(fast->id),
                fast->name, to_string(fast->kind));
  }
  if (slow->kind != NodeKind::storage && !slow->byte_addressable()) {
    return fail(ErrorCode::unsupported, "columns cannot start on node {} ({})", raw(slow->id),
                to_string(slow->kind));
  }
  if (slow->id == fast->id) {
    return fail(ErrorCode::invalid, "slow and fast are both node {}; name two nodes",
                raw(slow->id));
  }
  return {};
}

Status check_options(const Table& table, const Machine& machine, const QueryOptions& options) {
  HEADRACE_TRY_STATUS(check_nodes(machine, options.slow, options.fast));
  const Node* const slow = machine.find(options.slow);
  for (const QueryGroup& group : options.groups) {
    HEADRACE_TRY_STATUS(check_nodes(machine, group.slow, group.fast));
    if (machine.find(group.slow)->kind == slow->kind) continue;
    return fail(ErrorCode::invalid,
                "groups begin on node {} and node {}, which are not of one kind", raw(slow->id),
                raw(group.slow));
  }
  if (options.threads == 0 || options.threads > 1024) {
    return fail(ErrorCode::invalid, "{} threads; take 1 to 1024", options.threads);
  }
  if (options.aggregators > 1024) {
    return fail(ErrorCode::invalid, "{} threads of a second stage; take at most 1024",
                options.aggregators);
  }
  if (options.block < Bytes{kRowAlignment} || options.block > 1_GiB) {
    return fail(ErrorCode::invalid, "a block of {}; take 4 KiB to 1 GiB", to_string(options.block));
  }
  if (options.mode == QueryMode::mmap && slow->kind != NodeKind::storage) {
    return fail(ErrorCode::unsupported,
                "mmap maps files, but node {} is {}; take direct, which reads it in place",
                raw(slow->id), to_string(slow->kind));
  }
  for (const Column& column : table.columns()) {
    HEADRACE_TRY(const auto file, table.file(column.name));
    if (slow->kind == NodeKind::storage && file->node() != slow->id) {
      return fail(ErrorCode::invalid, "{} is on node {}, not on {}; name the node it is on",
                  file->path().string(), raw(file->node()), raw(slow->id));
    }
  }
  return {};
}

// Each chunk in progress holds a block of every column, and one more must fit to be fetched
// meanwhile.
Status check_budget(const QueryScan& scan, const QueryOptions& options, unsigned row_bytes,
                    unsigned widest) {
  const std::uint64_t rows = std::min(scan.chunk_rows, scan.rows);
  const Bytes least{rows * (std::uint64_t{options.slots()} * row_bytes + widest)};
  if (options.mode != QueryMode::prefetch || options.budget >= least) return {};
  return fail(
      ErrorCode::exhausted,
      "a budget of {} is less than the {} of {} chunks in progress; raise the budget, or take "
      "smaller blocks or fewer threads",
      to_string(options.budget), to_string(least), options.slots());
}

}  // namespace

Bytes QueryScan::bytes() const {
  Bytes total;
  for (std::size_t i = 0; i < columns.size(); ++i) total += column_bytes(i);
  return total;
}

Bytes QueryScan::chunk_bytes() const {
  Bytes total;
  for (const Column& column : columns) total += Bytes{chunk_rows * column.width};
  return total;
}

Result<QueryScan> make_scan(const Table& table, const Machine& machine,
                            const QueryOptions& options) {
  HEADRACE_TRY_STATUS(check_options(table, machine, options));
  QueryScan scan;
  HEADRACE_TRY(scan.query, find_query(options.query));
  unsigned widest = 1;
  unsigned row_bytes = 0;
  for (const std::string& name : scan.query->columns) {
    HEADRACE_TRY(const Column* column, table.column(name));
    HEADRACE_TRY(const auto file, table.file(name));
    scan.columns.push_back(*column);
    scan.files.push_back(file);
    widest = std::max(widest, column->width);
    row_bytes += column->width;
  }
  scan.rows = table.rows();
  scan.slow_is_storage = machine.find(options.slow)->kind == NodeKind::storage;
  scan.chunk_rows = std::max<std::uint64_t>(
      options.block.value / widest / kRowAlignment * kRowAlignment, kRowAlignment);
  HEADRACE_TRY_STATUS(check_budget(scan, options, row_bytes, widest));
  return scan;
}

Result<Bytes> make_cold(const QueryScan& scan) {
  Bytes cached;
  for (const auto& file : scan.files) HEADRACE_TRY_STATUS(file->drop_page_cache());
  for (const auto& file : scan.files) {
    HEADRACE_TRY(const Bytes bytes, file->page_cache_residency());
    cached += bytes;
  }
  return cached;
}

}  // namespace headrace
