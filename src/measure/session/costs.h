// SPDX-License-Identifier: Apache-2.0
// The time that points of a session take: first estimated, then measured. Single-thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headrace/units.h"
#include "measure/session/experiment.h"

namespace headrace::session {

// Estimates are for one kind of machine. Measured points correct them, first within the same
// experiment, then in all. A measured point uses its own time.
class Costs {
 public:
  // Adds the next point. `repetitions` of it are made; costs are given for three. The cost of a
  // shared setup is divided equally among its points.
  void add(const Point& point, unsigned repetitions);
  // A mapping of point `index` took `took`, including races that had not run before.
  void learn(std::size_t index, Nanoseconds took);
  // Expected time of one mapping.
  Nanoseconds of(std::size_t index) const { return of(std::vector{Mappings{index, 1}}); }
  // Expected time of several points together, with `count` mappings each. A race that has not run
  // counts once.
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
    double own = 0;                  // estimate in seconds
    std::pair<MemoryKey, std::string> setup;
    double took = 0;  // seconds, all mappings together
    std::size_t mappings = 0;
  };
  struct Sum {
    double estimated = 0;
    double took = 0;
  };
  // Seconds without races: by estimate, and by all that is known.
  double estimated(const Cost& cost) const;
  double expected(const Cost& cost) const;

  std::map<std::pair<MemoryKey, std::string>, Setup> setups_;
  std::map<std::string, std::size_t> races_;
  std::vector<bool> raced_;  // by index of the race
  std::map<std::string, Sum> by_experiment_;
  Sum all_;
  std::vector<Cost> costs_;
};

}  // namespace headrace::session
