// SPDX-License-Identifier: Apache-2.0
// Lines that controllers of DDR memory read and write, by perf's PMUs of what is outside the cores.
//
// Intel's controllers name their events in sysfs (cas_count_read, cas_count_write, by channel or
// sub-channel) with scale and unit. AMD's (amd_umc, from Zen 4 on) have one event for
// all commands on a channel, 64 bytes each: umc_cas_cmd.all of
// tools/perf/pmu-events/arch/x86/amdzen4/memory-controller.json. Older EPYCs (amd_df) count in
// events that differ by model and are not read. Single-thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "headrace/result.h"
#include "measure/instruments/counters/bus_counter.h"

namespace headrace::instruments {

struct PerfEvent {
  std::uint32_t type = 0;  // the PMU's
  std::uint64_t config = 0;
  int cpu = 0;  // that reads it

  friend bool operator==(const PerfEvent&, const PerfEvent&) = default;
};

struct PerfCount {
  std::uint64_t value = 0;
  // ns; fewer were running where events take turns on a counter.
  std::uint64_t enabled = 0;
  std::uint64_t running = 0;
};

// perf_event_open(2), so that tests can count themselves.
class PerfReader {
 public:
  virtual ~PerfReader() = default;
  // A number for the event, which counts from now on. denied: not to this user.
  virtual Result<int> open(const PerfEvent& event) = 0;
  virtual Result<PerfCount> read(int event) = 0;
  virtual void close(int event) = 0;
};
PerfReader& system_perf();

// All such controllers of the host together. absent: there are none; denied: not for this user, and
// what to do. `perf` must outlive it.
Result<std::unique_ptr<BusCounter>> open_uncore(const std::filesystem::path& sysfs,
                                                PerfReader& perf);

}  // namespace headrace::instruments
