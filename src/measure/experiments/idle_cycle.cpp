// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/idle_cycle.h"

#include <limits>

#include "core/fail.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::session {
namespace {

constexpr Bytes kLeastChased = 64_MiB;
// The index of the buffer with the cycle: no other experiment counts so far.
constexpr std::size_t kCycle = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kNsPerLine = 40;  // to link it

}  // namespace

Bytes idle_cycle_bytes(Row& row, const Machine& machine, unsigned cpu) {
  return past_caches(row, machine, {cpu}, kCachesChased, kLeastChased);
}

Result<IdleCycle> idle_cycle(BufferPool& buffers, Random& random, const MemoryKey& memory,
                             Bytes bytes, unsigned cpu) {
  HEADRACE_TRY(const auto area, buffers.get(memory, kCycle, bytes));
  void*& at = buffers.note(memory, kCycle);
  if (at == nullptr) {
    HEADRACE_TRY_STATUS(
        run_pinned({cpu}, [&](std::size_t) { at = make_cycle(area, Bytes{0}, random); }));
  }
  return IdleCycle{.at = at, .memory = area};
}

SharedSetup idle_cycle_setup(Bytes bytes) {
  return {.name = "cycle",
          .cost = touching(bytes, 8) +
                  Nanoseconds{static_cast<std::int64_t>(bytes.value * kNsPerLine / kLine)}};
}

}  // namespace headrace::session
