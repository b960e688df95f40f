// SPDX-License-Identifier: Apache-2.0
// The pointer cycle for idle latency. `latency`, the chains of `parallelism` and the observer of
// `loaded` share it, so that the load is the only difference. Single-thread.
//
// It is linked once per round. Each chase continues where the last one ended, so a line repeats
// only after all others, even with many chases per round. No line is in a cache when a chase
// begins: after linking, a cache would hold an eighth of the lines, or all of them on a virtual
// machine that shows a smaller cache than its host has.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::session {

// A size at which `cpu` sees only memory: eight times its caches, at least 64 MiB. Sets flags of
// the row.
Bytes idle_cycle_bytes(Row& row, const Machine& machine, unsigned cpu);

// One cycle through `bytes` of the node, in one window. `cpu` links it at the first request for
// this size. Each request drops it from the caches.
struct IdleCycle {
  void*& at;  // where to begin; a chase stores its end here
  std::span<const std::byte> memory;
  std::size_t dropped;  // lines dropped from the caches; 0: the CPU cannot
};
Result<IdleCycle> idle_cycle(BufferPool& buffers, Random& random, const MemoryKey& memory,
                             Bytes bytes, unsigned cpu);

// The cost of making the cycle, once per round.
SharedSetup idle_cycle_setup(Bytes bytes);

}  // namespace headrace::session
