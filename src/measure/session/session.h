// SPDX-License-Identifier: Apache-2.0
// A session: points measured in turn until each is certain enough or the time is over.
//
// Rounds. In each, every point that still needs it is measured once on fresh memory, in an order
// drawn anew (points that share memory together), with a check for noise every second.
// So drift of the machine spreads over all points instead of falling on the last ones, and no point
// depends on one mapping. When a point is certain: stopping.h. Single-thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headrace/measure.h"
#include "measure/session/experiment.h"
#include "measure/session/noise.h"

namespace headrace::session {

// What one mapping gave.
struct Mapping {
  double value = 0;  // median of its repetitions
  std::map<std::string, double> details;
  std::map<std::string, std::string> words = {};
  double cpu_share = 1;  // the median of its repetitions'
  // The least part in huge pages of memory that was asked for in such; nothing: none was.
  std::optional<double> huge_part = {};
  // Control groups stopped its threads in a repetition, and again in each that took its place.
  bool throttled = false;
  std::size_t check = 0;  // the last noise check before it; the next came after it
  unsigned round = 0;
};

struct Trial {
  Point point;
  std::vector<Mapping> mappings;
  std::optional<Error> error;
  unsigned busy = 0;  // mappings that timed out
};

// Fills the row of a trial: summary, details, flags, reason. One mapping that was not all in huge
// pages makes it "not_huge", wherever they were asked for; `huge_part` is in its details. Mappings
// in disturbed moments are left out where at least three quiet ones remain; else the row is flagged
// noisy if half of them were; so are those in which groups stopped threads, and "throttled" is a
// row that has such a one.
Row row_of(Trial trial, const std::vector<bool>& disturbed);

// Median over the rounds that both have of (own / reference); nothing where they share none.
std::optional<double> paired_ratio(std::span<const Mapping> own,
                                   std::span<const Mapping> reference);

// Runs the points. Rows come in their order. `sentinels`: see noise.h; without them nothing is
// checked but the samples' own CPU time. `throttled`: how often control groups have stopped this
// process (times_throttled); empty where none limits its CPU time. A repetition in which it rose
// counts time in which nothing ran, and is done again, three times at most. The budget runs from
// `begin`, a time of system_clock() (default: the time of the call). Measuring files are made first
// and may take a quarter of it.
struct SessionResult {
  std::vector<Row> rows;
  std::vector<NoiseCheck> checks;
  std::size_t disturbed = 0;  // checks
  unsigned rounds = 0;
  bool stopped = false;  // by the context
};
SessionResult run_session(const Machine& machine, std::vector<Point> points,
                          const Sentinels& sentinels, const MeasureOptions& options,
                          const ExperimentContext& context,
                          const std::function<std::uint64_t()>& throttled = {},
                          std::optional<Nanoseconds> begin = {});

}  // namespace headrace::session
