// SPDX-License-Identifier: Apache-2.0
// The cycle that idle latency is chased on: the same for `latency`, for the chains of `parallelism`
// and for the observer of `loaded`, so that what the load adds is all that differs. It is linked
// once a round. Each goes on where the last one ended, so that a line comes up again only after all
// others, though many chase in one round. Single-thread.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::session {

// As long as `cpu` sees of it nothing but memory: eight times its caches, 64 MiB at least. The
// flags go to the row.
Bytes idle_cycle_bytes(Row& row, const Machine& machine, unsigned cpu);

// One cycle through the first `bytes` of a buffer of the node, in one window; linked by `cpu` when
// it is first asked for, so that what was written last is in its caches, as a program's would be.
struct IdleCycle {
  void*& at;  // where to begin; whoever chases leaves there where it ended
  std::span<const std::byte> memory;
};
Result<IdleCycle> idle_cycle(BufferPool& buffers, Random& random, const MemoryKey& memory,
                             Bytes bytes, unsigned cpu);

// What making it costs once a round.
SharedSetup idle_cycle_setup(Bytes bytes);

}  // namespace headrace::session
