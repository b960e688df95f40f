// SPDX-License-Identifier: Apache-2.0
// Finds the fastest shape of a loop by a race, on the CPUs and memory that are about to be
// measured.
//
// The lines in flight of a core bound its bandwidth. They depend on how many streams its
// prefetchers follow, on software prefetches and, a little, on the vector width. Shapes of reading
// differed by a factor of 1.4 on one CPU, and the best one was another on the next
// (docs/results/2026-11-24-traffic-shapes.md). A table by model would be wrong on the one after it.
//
// Rates are per CPU time, so that the scheduler of a busy machine does not choose. Several threads
// may need another shape than one thread alone, so they race together.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "measure/instruments/traffic/traffic.h"

namespace headrace::instruments {

// Shapes to race for a mix on this CPU: 1, 2, 4 and 8 streams, each vector width, and for a mix
// that reads none, a short and a long prefetch. The first is the plain loop.
std::vector<Shape> shapes_of(const Mix& mix);

// Name of a race. Mixes with the same number of threads on the same `ground` share a race.
std::string race_of(const Mix& mix, std::size_t threads, const std::string& ground);

// Approximate time of a race.
inline constexpr Nanoseconds kRaceTime = std::chrono::milliseconds{50};

// Runs heats: all shapes, then the better ones for longer, until one is left. `rates` runs the
// shapes in order, each for `each`, and returns their rates. Requires: at least one shape.
using Heat =
    std::function<Result<std::vector<double>>(const std::vector<Shape>& shapes, Nanoseconds each)>;
Result<Shape> winner(std::vector<Shape> shapes, const Heat& rates);

// The races of one session. Single-thread.
class Races {
 public:
  // The fastest shape of the mix for one thread per CPU, thread i in areas[i]. The race runs once
  // per number of threads and `ground`, which names the kind of memory and its distance; later
  // calls return its winner. Errors: those of run_together. Requires: as many areas as CPUs, at
  // least one.
  Result<Shape> fastest(const Mix& mix, const CpuSet& cpus, const std::string& ground,
                        const std::vector<TrafficArea>& areas);

 private:
  std::map<std::string, Shape> known_;  // by race_of
};

}  // namespace headrace::instruments
