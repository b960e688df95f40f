// SPDX-License-Identifier: Apache-2.0
// Model of a server whose threads are always busy, on two memories: its operations per second.
// Pure. Thread-safe.
//
// An operation takes CPU time, waits for a number of cache lines one after the other, and streams
// its value. The time per line depends on the traffic of all threads, by measured curves.
#pragma once

#include <span>
#include <string>

#include "benchmarks/keyvalue/ycsb/operations.h"
#include "headrace/advice/interleave.h"

namespace headrace::kv_bench {

struct Server {
  unsigned threads = 7;
  double cpu_ns = 0;           // per operation, without waits for memory
  double dependent_lines = 0;  // per operation, each awaited before the next
  double ssd_ns = 0;           // additional time if the record is on SSD
};

// The memory traffic of an operation.
struct LinesPerOperation {
  double awaited = 0;  // one after the other
  double bus = 0;      // total traffic of the memory
  std::string mix;     // ratio of loads to stores; selects the curves
};
// A value is streamed: with as many lines in flight as a core supports.
LinesPerOperation lines_of(const Workload& workload, const Server& server, double value_bytes);

// Shares of accesses by the place of the record; the rest is in the first memory.
struct Shares {
  double slow = 0;  // in the second memory
  double ssd = 0;
};

struct Served {
  double ops_per_second = 0;
  // Time of an operation on a thread, by the place of its record.
  double fast_ns = 0;
  double slow_ns = 0;
  double ssd_ns = 0;
  double lines_in_flight = 0;
  double fast_used = 0;  // share of the first memory's maximum
};

// Requires: two tiers, fast first; shares of 0 to 1 in total.
Served serve(std::span<const Tier> tiers, const Server& server, const LinesPerOperation& lines,
             const Shares& shares);

}  // namespace headrace::kv_bench
