// SPDX-License-Identifier: Apache-2.0
// A server of so many threads, each of which has an operation at all times, on two memories: how
// many operations a second that gives.
//
// A model: an operation takes CPU time, waits for so many cache lines one after the other and
// streams its value; how long a line takes depends on how much all threads ask, by measured curves.
// Pure functions. Thread-safe.
#pragma once

#include <span>
#include <string>

#include "headrace/advice/interleave.h"
#include "workload/kv/ycsb/operations.h"

namespace headrace::kv_bench {

struct Server {
  unsigned threads = 7;
  double cpu_ns = 0;           // of an operation, besides waiting for memory
  double dependent_lines = 0;  // of an operation, each awaited before the next
  double ssd_ns = 0;           // more, where the record lies on SSD
};

// What an operation asks of memory.
struct LinesPerOperation {
  double awaited = 0;  // one after the other
  double bus = 0;      // all of the memory's traffic
  std::string mix;     // loads to stores: whose curves to take
};
// A value is streamed: as many lines at once as a core keeps in flight.
LinesPerOperation lines_of(const Workload& workload, const Server& server, double value_bytes);

// Where accesses find their record; the rest: in the first memory.
struct Shares {
  double slow = 0;  // in the second memory
  double ssd = 0;
};

struct Served {
  double ops_per_second = 0;
  // The time of an operation by where its record is, on a thread.
  double fast_ns = 0;
  double slow_ns = 0;
  double ssd_ns = 0;
  double lines_in_flight = 0;
  double fast_used = 0;  // of what the first memory gives at most
};

// Requires: two tiers, fast first; shares of 0 to 1 together.
Served serve(std::span<const Tier> tiers, const Server& server, const LinesPerOperation& lines,
             const Shares& shares);

}  // namespace headrace::kv_bench
