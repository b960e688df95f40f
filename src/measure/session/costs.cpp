#include "measure/session/costs.h"

#include <algorithm>
#include <cmath>

#include "measure/instruments/traffic/traffic_race.h"
#include "measure/session/plan.h"

namespace headrace::session {

void Costs::add(const Point& point, unsigned repetitions) {
  const double part = std::min(1.0, repetitions / kRepetitionsOfCosts);
  Cost cost{.experiment = point.row.experiment,
            .races = point.races,
            .own = seconds(point.cost) * part,
            .setup = {point.memory, point.setup.name}};
  Setup& setup = setups_[cost.setup];
  setup.cost = std::max(setup.cost, seconds(point.setup.cost));
  ++setup.points;
  costs_.push_back(std::move(cost));
}

double Costs::estimated(const Cost& cost) const {
  const Setup& setup = setups_.at(cost.setup);
  return cost.own + setup.cost / static_cast<double>(setup.points);
}

double Costs::races_of(const Cost& cost) const {
  const auto pending = std::ranges::count_if(
      cost.races, [&](const std::string& race) { return !raced_.contains(race); });
  return static_cast<double>(pending) * seconds(instruments::kRaceTime);
}

void Costs::learn(std::size_t index, Nanoseconds took) {
  Cost& cost = costs_[index];
  const double own = std::max(0.0, seconds(took) - races_of(cost));
  raced_.insert(cost.races.begin(), cost.races.end());
  cost.took += own;
  ++cost.mappings;
  for (Sum* sum : {&all_, &by_experiment_[cost.experiment]}) {
    sum->estimated += estimated(cost);
    sum->took += own;
  }
}

Nanoseconds Costs::of(std::size_t index) const {
  const auto in_ns = [](double s) { return Nanoseconds{std::llround(s * 1e9)}; };
  const Cost& cost = costs_[index];
  if (cost.mappings > 0) return in_ns(cost.took / static_cast<double>(cost.mappings));
  const auto own = by_experiment_.find(cost.experiment);
  const Sum& sum = own == by_experiment_.end() ? all_ : own->second;
  return in_ns(estimated(cost) * (sum.estimated > 0 ? sum.took / sum.estimated : 1) +
               races_of(cost));
}

}  // namespace headrace::session
