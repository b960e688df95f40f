// SPDX-License-Identifier: Apache-2.0
// Passes a cache line from one CPU to another and back. Each CPU writes to it when it sees the
// other's write, and does nothing else; so a round trip is two handovers. Thread-compatible.
//
// The CPUs poll as often as possible, without a pause instruction, whose length differs tenfold
// between CPUs.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

struct PingPong {
  double round_trip_ns = 0;
  double cpu_share = 1;  // the smaller of both threads'
};

// Total time that the two threads wait for each other before they give up.
inline constexpr Nanoseconds kMostPingPongWait = std::chrono::seconds{2};

// Makes `trips` round trips on each line of `memory` in turn, after some uncounted ones. Several
// lines, because the time depends on a line's home in a distributed cache. Overwrites the memory.
// Requires: two CPUs; at least one line, aligned. Errors: denied: a thread could not be bound to
// its CPU; timed_out: the other did not answer within `most_wait`.
Result<PingPong> ping_pong(std::array<unsigned, 2> cpus, std::span<std::byte> memory,
                           std::size_t trips, Nanoseconds most_wait = kMostPingPongWait);

}  // namespace headrace::instruments
