// SPDX-License-Identifier: Apache-2.0
// Clients that send requests to a server, one at a time each, in a closed loop or, at a rate, in an
// open loop. One thread serves all clients by epoll, so that a few of them take little of the
// server's CPUs. Single-thread.
//
// In an open loop each operation has an intended begin. If no client is free then, it waits, and
// its latency counts from the intended time. The figures thus include what a pausing server does to
// later requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "benchmarks/keyvalue/live/connection.h"
#include "benchmarks/keyvalue/ycsb/operations.h"
#include "headrace/result.h"

namespace headrace::kv_bench {

struct DriveOptions {
  Protocol protocol = Protocol::redis;
  std::string socket;
  std::uint64_t records = 0;  // already stored
  std::size_t value_bytes = 1024;
  unsigned clients = 8;
  double seconds = 1;
  std::optional<double> rate;  // operations per second; nullopt: a closed loop
  std::uint64_t seed = 1;
  int server = 0;  // process whose faults and CPU time are reported; 0: none
};

struct Driven {
  std::uint64_t operations = 0;
  std::uint64_t wrong = 0;  // values of another record, and refused writes
  // Requests retried because memcached had no memory for a response; the latency counts from the
  // first try.
  std::uint64_t repeated = 0;
  // In an open loop that the server cannot keep up with: operations not begun within twice the
  // time.
  std::uint64_t not_begun = 0;
  double seconds = 0;
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  // Use of the server per operation.
  std::optional<double> major_faults;
  std::optional<double> cpu_us;
};

// Updates and inserts stay stored. Errors: absent, unsupported, io: as Connection; timed_out: no
// response for 10 s.
Result<Driven> drive(const Workload& workload, const DriveOptions& options);

}  // namespace headrace::kv_bench
