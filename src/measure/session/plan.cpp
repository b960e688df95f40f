// SPDX-License-Identifier: Apache-2.0
#include "measure/session/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "measure/instruments/traffic/traffic_race.h"
#include "measure/session/stopping.h"

namespace headrace::session {
namespace {

// The share of the budget for points; the rest is for sentinels and statistics.
constexpr double kForPoints = 0.85;

void leave_out(Point& point, const MeasureOptions& options) {
  point.row.reason = fmt::format(
      "left out: a budget of {:.0f} s went to more important points; a larger one measures it",
      seconds(*options.budget));
  point.row.add_flag("left_out");
}

// The total time of points, with shared setups and races counted once.
class Spending {
 public:
  explicit Spending(const MeasureOptions& options) : options_(options) {}

  // In seconds, in addition to the points added before.
  double of(const Point& point) const {
    double once = seconds(point.cost) * std::min(1.0, options_.repetitions / kRepetitionsOfCosts);
    if (!made_.contains({point.memory, point.setup.name})) once += seconds(point.setup.cost);
    const auto races = std::ranges::count_if(
        point.races, [&](const std::string& race) { return !raced_.contains(race); });
    return once * static_cast<double>(least_mappings(point, options_)) +
           static_cast<double>(races) * seconds(kRaceTime);
  }
  void add(const Point& point) {
    used_ += of(point);
    made_.insert({point.memory, point.setup.name});
    raced_.insert(point.races.begin(), point.races.end());
  }
  double used() const { return used_; }

 private:
  const MeasureOptions& options_;
  std::set<std::pair<MemoryKey, std::string>> made_;
  std::set<std::string> raced_;
  double used_ = 0;
};

}  // namespace

std::size_t least_mappings(const Point& point, const MeasureOptions& options) {
  if (point.row.basis == Basis::modelled) return 1;
  if (options.rounds) return *options.rounds;
  if (options.budget) return kFewest;
  if (options.launches > 1) return point.rank < kWantedLast ? 2 : 1;
  return kLooks.front();
}

bool is_counted(const Point& point, const MeasureOptions& options) {
  return options.rounds || point.row.basis == Basis::modelled ||
         (!options.budget && options.launches > 1);
}

void leave_out(std::vector<Point>& points, const MeasureOptions& options, const Shares& shares) {
  if (!options.budget) return;
  std::map<std::string, std::vector<Point*>> by_experiment;
  std::vector<Point*> by_rank;
  for (Point& point : points) {
    if (!point.row.reason.empty()) continue;
    by_experiment[point.row.experiment].push_back(&point);
    by_rank.push_back(&point);
  }
  if (by_rank.empty()) return;
  // Points of equal rank in the experiment's order, which is that of the array.
  const auto order = [](Point* point) { return std::pair(point->rank, point); };
  std::ranges::sort(by_rank, {}, order);
  const auto share_of = [&](const std::string& experiment) {
    const auto found = shares.find(experiment);
    return found == shares.end() ? 1.0 : static_cast<double>(found->second);
  };
  double all_shares = 0;
  for (const auto& [experiment, own] : by_experiment) all_shares += share_of(experiment);
  const double allowed = seconds(*options.budget) * kForPoints;
  Spending spending(options);
  std::set<Point*> in;
  const auto take = [&](const std::vector<Point*>& wanted, double most) {
    for (Point* point : wanted) {
      if (in.contains(point) || spending.used() + spending.of(*point) > most) continue;
      spending.add(*point);
      in.insert(point);
    }
  };
  for (auto& [experiment, own] : by_experiment) {
    std::ranges::sort(own, {}, order);
    take(own, spending.used() + allowed * share_of(experiment) / all_shares);
  }
  take(by_rank, allowed);
  if (in.empty()) in.insert(by_rank.front());
  for (Point* point : by_rank) {
    if (!in.contains(point)) leave_out(*point, options);
  }
}

std::vector<Nanoseconds> times_of(const std::vector<Point>& points, const MeasureOptions& options) {
  Spending spending(options);
  std::vector<Nanoseconds> times;
  for (const Point& point : points) {
    const double before = spending.used();
    if (point.row.reason.empty()) spending.add(point);
    times.push_back(Nanoseconds{std::llround((spending.used() - before) * 1e9)});
  }
  return times;
}

}  // namespace headrace::session
