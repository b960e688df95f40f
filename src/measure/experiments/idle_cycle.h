// SPDX-License-Identifier: Apache-2.0
// The cycle that idle latency is chased on: the same for `latency`, for the chains of `parallelism`
// and for the observer of `loaded`, so that what the load adds is all that differs. It is linked
// once a round. Each goes on where the last one ended, so that a line comes up again only after all
// others, though many chase in one round. No line of it is in a cache when a chase begins: after
// linking, a cache would hold an eighth of the lines, or all of them where a virtual machine shows
// a smaller cache than its host has. Single-thread.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::session {

// As long as `cpu` sees of it nothing but memory: eight times its caches, 64 MiB at least. The
// flags go to the row.
Bytes idle_cycle_bytes(Row& row, const Machine& machine, unsigned cpu);

// One cycle through `bytes` of the node, in one window; linked by `cpu` at the first request for
// this size. Each request drops it from the caches.
struct IdleCycle {
  void*& at;  // where to begin; whoever chases leaves there where it ended
  std::span<const std::byte> memory;
  std::size_t dropped;  // lines, from the caches; 0: the CPU cannot
};
Result<IdleCycle> idle_cycle(BufferPool& buffers, Random& random, const MemoryKey& memory,
                             Bytes bytes, unsigned cpu);

// The cost of making it, once a round.
SharedSetup idle_cycle_setup(Bytes bytes);

}  // namespace headrace::session
