// The parts of measure_briefly: each one measurement, with the rows it gives. Thread-compatible.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headrace/measure.h"

namespace headrace {

// What a step may use and fill.
struct Brief {
  Machine& machine;
  const Backends& backends;
  std::filesystem::path directory;
  std::vector<RateRow> rows;
};

struct Step {
  std::function<void(Brief&)> run;
  // A row for the case that it was not run for want of time; empty: it is always run.
  std::function<RateRow()> left_out;
};

// Reading, writing and copying the memory of each node: one thread, and all CPUs near it.
std::vector<Step> memory_steps(const Machine& machine);
// Copying between nodes with each engine of cores, as a backend: gives copy rates.
std::vector<Step> core_steps(const Machine& machine, const Backends& backends);
// Reading a file in the directory by block size and depth, and the copy rate of its disk.
std::vector<Step> disk_steps();

// Measures T(V) of `engine` at two sizes of a copy between two extents of the large size, adds the
// rate to the machine (replacing an earlier one) and the row for the large size.
struct RateExperiment {
  EngineId engine;
  Extent to;
  Extent from;
  std::string what;
  std::string where;
};
void measure_rate(Brief& brief, const RateExperiment& experiment);

// A row that has only its reason.
RateRow row_without(RateRow row, const std::string& reason);
// The row with the summary of these samples, or with a reason where there are none.
RateRow row_with(RateRow row, std::span<const double> bytes_per_second);

}  // namespace headrace
