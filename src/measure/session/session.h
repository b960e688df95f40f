// SPDX-License-Identifier: Apache-2.0
// Runs a session: measures points in rounds until each is certain enough or the time is over.
// Single-thread.
//
// In each round every unfinished point is measured once, on fresh memory, in a new random order
// (points that share memory together), with a noise check every second. Drift of the machine thus
// spreads over all points instead of falling on the last ones, and no point depends on one mapping.
// stopping.h defines when a point is certain.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headrace/measure.h"
#include "measure/session/experiment.h"
#include "measure/session/noise.h"

namespace headrace::session {

// Result of one mapping.
struct Mapping {
  double value = 0;  // median of its repetitions
  std::map<std::string, double> details;
  std::map<std::string, std::string> words = {};
  double cpu_share = 1;  // the median over its repetitions
  // The least share of huge pages in memory that shall have them; nullopt: no such memory.
  std::optional<double> huge_part = {};
  // Control groups stopped its threads in a repetition, and in each retry.
  bool throttled = false;
  std::size_t check = 0;  // last noise check before it; the next one followed it
  unsigned round = 0;
};

struct Trial {
  Point point;
  std::vector<Mapping> mappings;
  std::optional<Error> error;
  unsigned busy = 0;  // mappings that timed out
};

// Fills the row of a trial: summary, details, flags, reason.
// - "not_huge": one mapping was not all in huge pages where requested; the detail `huge_part` has
//   the share.
// - "noisy": fewer than three mappings were quiet, and at least half were disturbed or had their
//   threads stopped by control groups. With three quiet ones, the others are left out.
// - "throttled": at least one mapping had its threads stopped.
Row row_of(Trial trial, const std::vector<bool>& disturbed);

// Median of (own / reference) over the rounds that both have; nullopt: no common round.
std::optional<double> paired_ratio(std::span<const Mapping> own,
                                   std::span<const Mapping> reference);

// Runs the points; rows come in their order. Without `sentinels` (noise.h), only the samples' own
// CPU time is checked. `throttled`: returns how often control groups have stopped this process
// (times_throttled); empty: no limit. A repetition during which it rose includes time without work,
// and is repeated, at most three times.
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
                          const std::function<std::uint64_t()>& throttled = {});

}  // namespace headrace::session
