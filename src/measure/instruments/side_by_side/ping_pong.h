// SPDX-License-Identifier: Apache-2.0
// Handing a cache line from one CPU to another and back: each writes to it when it sees what the
// other has written, and nothing else, so that the time of a round trip is twice that of a
// handover.
//
// The CPUs look as often as they can, without a pause instruction, whose length differs tenfold
// between CPUs. Thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

struct PingPong {
  double round_trip_ns = 0;
  double cpu_share = 1;  // the least of both threads'
};

// How long the two wait for each other before they give up, in all.
inline constexpr Nanoseconds kMostPingPongWait = std::chrono::seconds{2};

// `trips` round trips on each line of `memory` in turn, after some that do not count: where a line
// has its home in a cache of many parts moves the time, so several are taken. The memory's words
// are overwritten. denied: a thread could not be bound to its CPU. timed_out: the other did not
// answer within `most_wait`; nobody waits longer. Requires: two CPUs, a line at least, aligned to
// it.
Result<PingPong> ping_pong(std::array<unsigned, 2> cpus, std::span<std::byte> memory,
                           std::size_t trips, Nanoseconds most_wait = kMostPingPongWait);

}  // namespace headrace::instruments
