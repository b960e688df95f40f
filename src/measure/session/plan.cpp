#include "measure/session/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "measure/session/stopping.h"

namespace headrace::session {
namespace {

// The part of the budget that points can have; the rest is for sentinels and statistics.
constexpr double kForPoints = 0.85;
// Costs are estimated for so many repetitions.
constexpr double kRepetitions = 3;

void leave_out(Point& point, const MeasureOptions& options) {
  point.row.reason = fmt::format(
      "left out: a budget of {:.0f} s is taken by what is wanted more; a larger one, or none, "
      "measures it",
      seconds(*options.budget));
  point.row.add_flag("left_out");
}

// What points take together, where setups are shared.
class Spending {
 public:
  explicit Spending(const MeasureOptions& options) : options_(options) {}

  // In seconds, on top of those added before.
  double of(const Point& point) const {
    double once = seconds(point.cost) * std::min(1.0, options_.repetitions / kRepetitions);
    if (!made_.contains({point.memory, point.setup.name})) once += seconds(point.setup.cost);
    return once * static_cast<double>(least_mappings(point, options_));
  }
  void add(const Point& point) {
    used_ += of(point);
    made_.insert({point.memory, point.setup.name});
  }
  double used() const { return used_; }

 private:
  const MeasureOptions& options_;
  std::set<std::pair<MemoryKey, std::string>> made_;
  double used_ = 0;
};

}  // namespace

std::size_t least_mappings(const Point& point, const MeasureOptions& options) {
  if (point.row.basis == Basis::modelled) return 1;
  return options.rounds.value_or(options.budget ? kFewest : kLooks.front());
}

void leave_out(std::vector<Point>& points, const MeasureOptions& options) {
  if (!options.budget) return;
  std::vector<Point*> by_rank;
  for (Point& point : points) {
    if (point.row.reason.empty()) by_rank.push_back(&point);
  }
  // Those of equal rank in the order of the experiment: they lie in one array.
  std::ranges::sort(by_rank, {}, [](Point* point) { return std::pair(point->rank, point); });
  const double allowed = seconds(*options.budget) * kForPoints;
  Spending spending(options);
  std::vector<Point*> out;
  for (Point* point : by_rank) {
    if (spending.used() + spending.of(*point) <= allowed) {
      spending.add(*point);
    } else {
      out.push_back(point);
    }
  }
  if (out.size() == by_rank.size() && !out.empty()) out.erase(out.begin());
  for (Point* point : out) leave_out(*point, options);
}

}  // namespace headrace::session
