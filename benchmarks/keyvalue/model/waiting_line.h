// SPDX-License-Identifier: Apache-2.0
// Latency of clients whose server threads serve them in turn: a simulation of the closed loop,
// where each client sends its next request after its response. Pure: the same seed gives the same
// times.
#pragma once

#include <cstdint>

#include "benchmarks/keyvalue/model/closed_loop.h"

namespace headrace::kv_bench {

struct LineOptions {
  unsigned clients = 56;
  std::uint64_t operations = 100'000;
  std::uint64_t seed = 1;
};

struct Latencies {
  double p50_us = 0;
  double p99_us = 0;
};

// Requires: threads, clients and operations > 0.
Latencies wait_in_line(const Served& served, const Shares& shares, unsigned threads,
                       const LineOptions& options);

}  // namespace headrace::kv_bench
