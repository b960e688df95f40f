// SPDX-License-Identifier: Apache-2.0
// Which shape of a loop is the fastest: found out by a race, on the CPUs and the memory that are
// about to be measured.
//
// What one core has on the way bounds its bandwidth, and that depends on how many streams its
// prefetchers follow, on prefetches by hand and, a little, on the width of vectors: between the
// shapes of reading lay a factor of 1.4 on one CPU, and the best was another on the next
// (docs/results/2026-11-24-traffic-shapes.md). A table by model would be wrong on the one after it.
// Rates are per CPU time: on a busy machine the scheduler must not choose. Threads together may
// want another shape than one alone, so it is theirs that is raced.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "measure/instruments/traffic/traffic.h"

namespace headrace::instruments {

// Those worth a race for a mix on this CPU: 1, 2, 4 and 8 streams, each width of vectors, and where
// it reads none, a short and a long prefetch. The first is the plain loop.
std::vector<Shape> shapes_of(const Mix& mix);

// The name of a race: those of as many threads of a mix on the same `ground` are one.
std::string race_of(const Mix& mix, std::size_t threads, const std::string& ground);

// What a race takes, roughly.
inline constexpr Nanoseconds kRaceTime = std::chrono::milliseconds{50};

// Runs heats: all shapes, then the better of them for longer, until one is left. `rates` runs the
// shapes one after the other, each for so long, and returns how fast each was. Requires: a shape.
using Heat =
    std::function<Result<std::vector<double>>(const std::vector<Shape>& shapes, Nanoseconds each)>;
Result<Shape> winner(std::vector<Shape> shapes, const Heat& rates);

// The races of one session. Single-thread.
class Races {
 public:
  // The fastest shape of the mix for a thread on each of `cpus`, in areas[i] each. The race is run
  // once for as many threads on the same `ground`, which names the kind of memory and how far it is
  // from them; afterwards its winner is known. The errors of run_together. Requires: as many areas
  // as CPUs, one at least.
  Result<Shape> fastest(const Mix& mix, const CpuSet& cpus, const std::string& ground,
                        const std::vector<TrafficArea>& areas);

 private:
  std::map<std::string, Shape> known_;  // by race_of
};

}  // namespace headrace::instruments
