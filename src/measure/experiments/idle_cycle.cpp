// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/idle_cycle.h"

#include <limits>

#include "core/fail.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::session {
namespace {

constexpr Bytes kLeastChased = 64_MiB;
// The index of the buffer for a cycle, one per size; no other experiment uses indices this large.
std::size_t index_of(Bytes bytes) {
  return std::numeric_limits<std::size_t>::max() - bytes.value / kLine;
}
constexpr std::size_t kNsPerLine = 40;  // to link it

}  // namespace

Bytes idle_cycle_bytes(Row& row, const Machine& machine, unsigned cpu) {
  return past_caches(row, machine, {cpu}, kCachesChased, kLeastChased);
}

Result<IdleCycle> idle_cycle(BufferPool& buffers, Random& random, const MemoryKey& memory,
                             Bytes bytes, unsigned cpu) {
  HEADRACE_TRY(const auto area, buffers.get(memory, index_of(bytes), bytes));
  void*& at = buffers.note(memory, index_of(bytes));
  std::size_t dropped = 0;
  HEADRACE_TRY_STATUS(run_pinned({cpu}, [&](std::size_t) {
    if (at == nullptr) at = make_cycle(area, Bytes{0}, random);
    dropped = drop_from_caches(area);
  }));
  return IdleCycle{.at = at, .memory = area, .dropped = dropped};
}

SharedSetup idle_cycle_setup(Bytes bytes) {
  return {.name = "cycle",
          .cost = touching(bytes, 8) +
                  Nanoseconds{static_cast<std::int64_t>(bytes.value * kNsPerLine / kLine)}};
}

}  // namespace headrace::session
