// SPDX-License-Identifier: Apache-2.0
// What points of a session take: estimated at first, then as they took.
// Single-thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headrace/units.h"
#include "measure/session/experiment.h"

namespace headrace::session {

// Estimates are for one kind of machine; how far they are off here shows in the
// points that were measured, first in those of the same experiment, then in
// others. Once a point was measured, its own time counts.
class Costs {
 public:
  // The next point; `repetitions` of it, of the three that costs are for. What
  // points share falls on all of them alike.
  void add(const Point& point, unsigned repetitions);
  // A mapping of point `index` took so long, with the races that were not run yet.
  void learn(std::size_t index, Nanoseconds took);
  // What one mapping of it will take.
  Nanoseconds of(std::size_t index) const { return of(std::vector{Mappings{index, 1}}); }
  // What several will take together, so many of each point: races that were not run yet once.
  struct Mappings {
    std::size_t index = 0;
    std::size_t count = 0;
  };
  Nanoseconds of(const std::vector<Mappings>& wanted) const;

 private:
  struct Setup {
    double cost = 0;  // seconds
    std::size_t points = 0;
  };
  struct Cost {
    std::string experiment;
    std::vector<std::size_t> races;  // indices
    double own = 0;                  // estimated, in seconds
    std::pair<MemoryKey, std::string> setup;
    double took = 0;  // in all its mappings, in seconds
    std::size_t mappings = 0;
  };
  struct Sum {
    double estimated = 0;
    double took = 0;
  };
  // In seconds, without races.
  double estimated(const Cost& cost) const;
  double expected(const Cost& cost) const;  // by what is known by now

  std::map<std::pair<MemoryKey, std::string>, Setup> setups_;
  std::map<std::string, std::size_t> races_;
  std::vector<bool> raced_;  // by index of the race
  std::map<std::string, Sum> by_experiment_;
  Sum all_;
  std::vector<Cost> costs_;
};

}  // namespace headrace::session
