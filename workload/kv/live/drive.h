// SPDX-License-Identifier: Apache-2.0
// Clients that ask a server: each one thing at a time, in a closed loop or, at a rate, in an open
// one. One thread serves them all by epoll, so that few of them cost the server's CPUs little.
//
// In an open loop an operation has a time at which it is meant to begin; if no client is free then,
// it waits, and its latency counts from that time: what a server that pauses does to those who come
// meanwhile is in the figures. Single-thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/result.h"
#include "workload/kv/live/connection.h"
#include "workload/kv/ycsb/operations.h"

namespace headrace::kv_bench {

struct DriveOptions {
  Protocol protocol = Protocol::redis;
  std::string socket;
  std::uint64_t records = 0;  // stored already
  std::size_t value_bytes = 1024;
  unsigned clients = 8;
  double seconds = 1;
  std::optional<double> rate;  // operations per second; nothing: a closed loop
  std::uint64_t seed = 1;
  int server = 0;  // its process, whose faults and CPU time are told; 0: not told
};

struct Driven {
  std::uint64_t operations = 0;
  std::uint64_t wrong = 0;  // values that were not their record's, writes that were not taken
  // Questions asked again since memcached had no memory for an answer at the moment; the latency
  // counts from the first.
  std::uint64_t repeated = 0;
  // In an open loop that the server cannot keep up with: what had no turn within twice the time.
  std::uint64_t not_begun = 0;
  double seconds = 0;
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  // The server's, per operation.
  std::optional<double> major_faults;
  std::optional<double> cpu_us;
};

// Updates and inserts stay stored. absent, unsupported, io: as Connection; timed_out: no answer for
// 10 s.
Result<Driven> drive(const Workload& workload, const DriveOptions& options);

}  // namespace headrace::kv_bench
