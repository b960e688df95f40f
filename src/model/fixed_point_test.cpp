// SPDX-License-Identifier: Apache-2.0
#include "model/fixed_point.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/model_testing.h"
#include "model/queue.h"

namespace headrace {
namespace {

struct Case {
  std::vector<Ceiling> ceilings;
  std::vector<ThreadClass> classes;

  std::vector<ScaledCeiling> scaled() const {
    std::vector<ScaledCeiling> found;
    for (const Ceiling& each : ceilings) found.push_back({.ceiling = &each});
    return found;
  }
};

FixedPoint solve_fixed_point(std::span<const ThreadClass> classes,
                             std::span<const ScaledCeiling> ceilings) {
  return RateSystem(classes, ceilings).solve();
}

double real(double low, double high) {  // evenly by magnitude
  const int steps = *rc::gen::inRange(0, 1001);
  return low * std::pow(high / low, steps / 1000.0);
}

// Loads from none to far beyond the ceilings, with and without caps and mixes. Bandwidths depend on
// the mix as those of DDR, HBM and links do.
Case any_case(std::size_t most_classes, std::size_t most_ceilings, bool mixes) {
  Case made;
  const auto ceilings = *rc::gen::inRange<std::size_t>(1, most_ceilings + 1);
  for (std::size_t c = 0; c < ceilings; ++c) {
    Ceiling ceiling = ceiling_to("c" + std::to_string(c), {0}, real(1e9, 1e12));
    if (mixes && *rc::gen::inRange(0, 3) == 0) {
      const double reads = ceiling.bandwidth.points.front().second;
      ceiling.bandwidth.points = {
          {0, reads}, {0.5, reads * real(0.7, 1.35)}, {1, reads * real(0.5, 1.2)}};
    }
    if (*rc::gen::inRange(0, 4) == 0) ceiling.queue.points = {{0.5, 10}, {0.9, 40}, {1, 300}};
    made.ceilings.push_back(std::move(ceiling));
  }
  const auto classes = *rc::gen::inRange<std::size_t>(1, most_classes + 1);
  for (std::size_t i = 0; i < classes; ++i) {
    ThreadClass each{.threads = real(1, 100),
                     .in_flight = real(64, 1e5),
                     .cap = std::numeric_limits<double>::infinity(),
                     .idle = real(1, 1000)};
    if (*rc::gen::inRange(0, 3) == 0) each.cap = real(0.01, 100);
    for (std::size_t c = 0; c < ceilings; ++c) {
      if (*rc::gen::inRange(0, 10) >= 4) continue;
      ClassCrossing crossing{.ceiling = c};
      const int kind = *rc::gen::inRange(0, 3);
      if (kind != 1) crossing.reads = real(0.1, 2);
      if (kind != 0) crossing.writes = real(0.1, 2);
      crossing.weight = crossing.reads + crossing.writes;
      each.crossings.push_back(crossing);
    }
    made.classes.push_back(std::move(each));
  }
  return made;
}

// Halves the interval of one queue after the other, again and again.
std::vector<double> naive_rates(const Case& given) {
  std::vector<double> queue(given.ceilings.size(), 0);
  const auto delay = [&](const ThreadClass& each) {
    double sum = each.idle;
    for (const ClassCrossing& at : each.crossings) sum += at.weight * queue[at.ceiling];
    return sum;
  };
  const auto rate = [&](const ThreadClass& each) {
    return std::min(each.cap, each.in_flight / delay(each));
  };
  const auto load = [&](std::size_t ceiling) {
    double sum = 0;
    for (const ThreadClass& each : given.classes) {
      for (const ClassCrossing& at : each.crossings) {
        if (at.ceiling == ceiling) sum += each.threads * at.weight * rate(each);
      }
    }
    return sum;
  };
  double moved = 1;
  for (int round = 0; round < 20000 && moved > 1e-11; ++round) {
    moved = 0;
    for (std::size_t c = 0; c < queue.size(); ++c) {
      const double before = queue[c];
      const double bandwidth = given.ceilings[c].bandwidth.points.front().second * 1e-9;
      double low = 0;
      double high = 1e9;
      for (int step = 0; step < 100; ++step) {
        queue[c] = (low + high) / 2;
        const double served = bandwidth * utilisation(given.ceilings[c].queue, queue[c]).value;
        (load(c) > served ? low : high) = queue[c];
      }
      moved = std::max(moved, std::abs(queue[c] - before) / (queue[c] + 1));
    }
  }
  std::vector<double> found;
  for (const ThreadClass& each : given.classes) found.push_back(rate(each));
  return found;
}

RC_GTEST_PROP(FixedPointTest, RatesAreThoseOfANaiveModel, ()) {
  const Case given = any_case(3, 3, false);
  const FixedPoint point = solve_fixed_point(given.classes, given.scaled());
  RC_ASSERT(point.converged);
  const std::vector<double> naive = naive_rates(given);
  for (std::size_t i = 0; i < naive.size(); ++i) {
    RC_ASSERT(std::abs(point.rate[i] / naive[i] - 1) < 1e-4);
  }
}

RC_GTEST_PROP(FixedPointTest, AnyMachine_HasASolutionThatItsEquationsHoldFor, ()) {
  const Case given = any_case(30, 40, true);
  const FixedPoint point = solve_fixed_point(given.classes, given.scaled());
  RC_ASSERT(point.converged);
  for (std::size_t i = 0; i < given.classes.size(); ++i) {
    double delay = given.classes[i].idle;
    for (const ClassCrossing& at : given.classes[i].crossings) {
      delay += at.weight * point.queue[at.ceiling];
    }
    const double rate = std::min(given.classes[i].cap, given.classes[i].in_flight / delay);
    RC_ASSERT(std::abs(point.rate[i] / rate - 1) < 1e-9);
  }
  for (std::size_t c = 0; c < given.ceilings.size(); ++c) {
    const double served =
        point.bandwidth[c] * utilisation(given.ceilings[c].queue, point.queue[c]).value;
    // Where the mix makes a bandwidth swing to the end, the solution is rough.
    const double bound = point.iterations < 400 ? 1e-8 : 1e-2;
    RC_ASSERT(std::abs(point.load[c] - served) <= bound * point.bandwidth[c]);
    const double share = given.ceilings[c].bandwidth.at(point.write_share[c]) * 1e-9;
    RC_ASSERT(point.load[c] == 0 || std::abs(point.bandwidth[c] / share - 1) < bound);
  }
}

RC_GTEST_PROP(FixedPointTest, ElasticitiesAreDerivatives, ()) {
  Case given = any_case(4, 4, false);
  RateSystem system(given.classes, given.scaled());
  const FixedPoint point = system.solve();
  const auto c = *rc::gen::inRange<std::size_t>(0, given.ceilings.size());
  constexpr double kStep = 1e-5;
  std::vector<ScaledCeiling> more = given.scaled();
  std::vector<ScaledCeiling> less = more;
  more[c].bandwidth += kStep;
  less[c].bandwidth -= kStep;
  const FixedPoint up = solve_fixed_point(given.classes, more);
  const FixedPoint down = solve_fixed_point(given.classes, less);
  for (std::size_t i = 0; i < given.classes.size(); ++i) {
    const double derivative = (up.rate[i] / down.rate[i] - 1) / (2 * kStep);
    // Where a cap or a point of a curve lies between, there is none.
    const double before = (up.rate[i] / point.rate[i] - 1) / kStep;
    const double after = (point.rate[i] / down.rate[i] - 1) / kStep;
    if (std::abs(before - after) > 1e-3) continue;
    RC_ASSERT(std::abs(derivative - system.elasticities(i)[c]) < 2e-3);
  }
}

// Whatever was solved before, also with classes left out. Where bandwidths depend on the mix there
// may be several solutions.
RC_GTEST_PROP(FixedPointTest, FromTheLastSolution_TheRatesAreTheSame, ()) {
  Case given = any_case(12, 12, *rc::gen::arbitrary<bool>());
  const bool unique = std::ranges::all_of(
      given.ceilings, [](const Ceiling& each) { return each.bandwidth.points.size() == 1; });
  RateSystem system(given.classes, given.scaled());
  for (int round = 0; round < 4; ++round) {
    std::vector<double> threads;
    for (ThreadClass& each : given.classes) {
      each.threads = *rc::gen::inRange(0, 3) == 0 ? 0 : real(1, 100);
      threads.push_back(each.threads);
    }
    std::vector<ThreadClass> present;
    std::ranges::copy_if(given.classes, std::back_inserter(present),
                         [](const ThreadClass& each) { return each.threads > 0; });
    const FixedPoint& warm = system.solve(threads);
    const FixedPoint cold = solve_fixed_point(present, given.scaled());
    RC_ASSERT(warm.converged && cold.converged);
    std::size_t next = 0;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      RC_ASSERT((warm.rate[i] == 0.0) == (threads[i] == 0));
      if (threads[i] == 0) continue;
      const double other = cold.rate[next++];
      RC_ASSERT(!unique || std::abs(warm.rate[i] / other - 1) < 1e-7);
    }
  }
}

TEST(FixedPointTest, NothingAtAll_IsSolved) {
  const FixedPoint point = solve_fixed_point({}, {});
  EXPECT_TRUE(point.converged);
  EXPECT_TRUE(point.rate.empty());
}

TEST(FixedPointTest, TwoSaturatedCeilingsInARow_Converge) {
  Case given;
  given.ceilings = {ceiling_to("a", {0}, 100e9), ceiling_to("b", {0}, 100e9)};
  ThreadClass each{
      .threads = 1, .in_flight = 1e5, .cap = std::numeric_limits<double>::infinity(), .idle = 1};
  each.crossings = {{.ceiling = 0, .reads = 1, .weight = 1},
                    {.ceiling = 1, .reads = 1, .weight = 1}};
  given.classes = {each};
  const FixedPoint point = solve_fixed_point(given.classes, given.scaled());
  ASSERT_TRUE(point.converged);
  EXPECT_NEAR(point.queue[0] / point.queue[1], 1, 1e-6);
  EXPECT_NEAR(point.rate[0], 102, 0.3);
}

}  // namespace
}  // namespace headrace
