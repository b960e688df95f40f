// SPDX-License-Identifier: Apache-2.0
// The numbers of the solver: classes of threads, ceilings, and the queue delays at which both
// agree. Pure functions; thread-safe.
//
// With D_i = idle_i + sum over ceilings of w_ic q_c, a thread of class i makes
// x_i = min(cap_i, in_flight_i / D_i) bytes per ns. The delays q solve, for each ceiling,
//
//     F_c = sum over i of threads_i w_ic x_i - bandwidth_c u_c(q_c) = 0.
//
// Both terms fall with every q, and -F is the gradient of a convex function: x_i is a falling
// function of D_i, and u_c rises. Hence Newton's method with a line search along each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/ceilings.h"

namespace headrace {

// Bytes per byte of progress across one ceiling.
struct ClassCrossing {
  std::size_t ceiling = 0;
  double reads = 0;
  double writes = 0;
  double weight = 0;  // reads + writes + those that requests count for
};

struct ThreadClass {
  double threads = 0;
  double in_flight = 0;                  // bytes per thread
  double cap = 0;                        // bytes per ns and thread; infinity: none
  double idle = 0;                       // ns per byte of progress and byte in flight
  std::vector<ClassCrossing> crossings;  // each ceiling once
};

// A ceiling with factors for the ends of intervals.
struct ScaledCeiling {
  const Ceiling* ceiling = nullptr;
  double bandwidth = 1;
  double queue = 1;  // of the default shape
};

struct FixedPoint {
  std::vector<double> delay;  // D by class
  std::vector<double> rate;   // x by class
  // One value per ceiling, in bytes per ns and ns.
  std::vector<double> load;
  std::vector<double> bandwidth;
  std::vector<double> write_share;
  std::vector<double> queue;
  unsigned iterations = 0;
  bool converged = false;
};

// One system of equations, solved for one number of threads after another.
class RateSystem {
 public:
  // Borrows the ceilings' Ceiling.
  RateSystem(std::span<const ThreadClass> classes, std::span<const ScaledCeiling> ceilings);
  ~RateSystem();
  RateSystem(RateSystem&&) noexcept;
  RateSystem& operator=(RateSystem&&) noexcept;

  // Solves for these threads, a number for each class, from the last solution on. A class with 0
  // threads is left out: its rate is 0. Valid until the next call.
  const FixedPoint& solve(std::span<const double> threads);
  // With the threads that the classes have.
  const FixedPoint& solve();

  // Returns by how many percent the last solution's rate of a class grows if 1 % is added to the
  // bandwidth of one ceiling (one value per ceiling), or to the bytes in flight of this class (the
  // last value). All are 0 if its cap holds it back, or it has no threads.
  std::vector<double> elasticities(std::size_t of_class);

 private:
  class System;
  std::unique_ptr<System> system_;
  FixedPoint point_;
};

}  // namespace headrace
