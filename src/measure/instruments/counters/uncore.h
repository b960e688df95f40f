// SPDX-License-Identifier: Apache-2.0
// Lines that DDR memory controllers read and write, by perf's PMUs of units outside the cores.
// Single-thread.
//
// Intel's controllers name their events in sysfs with scale and unit (cas_count_read,
// cas_count_write, per channel or sub-channel). AMD's (amd_umc, from Zen 4 on) have one event for
// all commands of a channel, 64 bytes each: umc_cas_cmd.all of
// tools/perf/pmu-events/arch/x86/amdzen4/memory-controller.json. Older EPYCs (amd_df) count in
// events that differ by model, and are not supported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "headrace/result.h"
#include "measure/instruments/counters/bus_counter.h"

namespace headrace::instruments {

struct PerfEvent {
  std::uint32_t type = 0;  // of the PMU
  std::uint64_t config = 0;
  int cpu = 0;  // reads the event

  friend bool operator==(const PerfEvent&, const PerfEvent&) = default;
};

struct PerfCount {
  std::uint64_t value = 0;
  // ns; `running` is less if events share a counter.
  std::uint64_t enabled = 0;
  std::uint64_t running = 0;
};

// perf_event_open(2); tests supply their own counts.
class PerfReader {
 public:
  virtual ~PerfReader() = default;
  // Opens an event, which counts from now on, and returns its number. Errors: denied: not
  // permitted.
  virtual Result<int> open(const PerfEvent& event) = 0;
  virtual Result<PerfCount> read(int event) = 0;
  virtual void close(int event) = 0;
};
PerfReader& system_perf();

// All such controllers of the host together. Requires: `perf` outlives it. Errors: absent: no such
// controller; denied: not permitted, and what to do.
Result<std::unique_ptr<BusCounter>> open_uncore(const std::filesystem::path& sysfs,
                                                PerfReader& perf);

}  // namespace headrace::instruments
