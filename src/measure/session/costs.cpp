// SPDX-License-Identifier: Apache-2.0
#include "measure/session/costs.h"

#include <algorithm>
#include <cmath>

#include "measure/instruments/traffic/traffic_race.h"
#include "measure/session/plan.h"

namespace headrace::session {

void Costs::add(const Point& point, unsigned repetitions) {
  const double part = std::min(1.0, repetitions / kRepetitionsOfCosts);
  Cost cost{.experiment = point.row.experiment,
            .races = {},
            .own = seconds(point.cost) * part,
            .setup = {point.memory, point.setup.name}};
  for (const std::string& race : point.races) {
    cost.races.push_back(races_.emplace(race, races_.size()).first->second);
  }
  raced_.resize(races_.size());
  Setup& setup = setups_[cost.setup];
  setup.cost = std::max(setup.cost, seconds(point.setup.cost));
  ++setup.points;
  costs_.push_back(std::move(cost));
}

double Costs::estimated(const Cost& cost) const {
  const Setup& setup = setups_.at(cost.setup);
  return cost.own + setup.cost / static_cast<double>(setup.points);
}

void Costs::learn(std::size_t index, Nanoseconds took) {
  Cost& cost = costs_[index];
  double own = seconds(took);
  for (const std::size_t race : cost.races) {
    if (!raced_[race]) own -= seconds(instruments::kRaceTime);
    raced_[race] = true;
  }
  own = std::max(0.0, own);
  cost.took += own;
  ++cost.mappings;
  for (Sum* sum : {&all_, &by_experiment_[cost.experiment]}) {
    sum->estimated += estimated(cost);
    sum->took += own;
  }
}

double Costs::expected(const Cost& cost) const {
  if (cost.mappings > 0) return cost.took / static_cast<double>(cost.mappings);
  const auto own = by_experiment_.find(cost.experiment);
  const Sum& sum = own == by_experiment_.end() ? all_ : own->second;
  return estimated(cost) * (sum.estimated > 0 ? sum.took / sum.estimated : 1);
}

Nanoseconds Costs::of(const std::vector<Mappings>& wanted) const {
  double sum = 0;
  std::vector<bool> raced = raced_;
  for (const Mappings& each : wanted) {
    const Cost& cost = costs_[each.index];
    sum += expected(cost) * static_cast<double>(each.count);
    for (const std::size_t race : cost.races) {
      if (!raced[race]) sum += seconds(instruments::kRaceTime);
      raced[race] = true;
    }
  }
  return Nanoseconds{std::llround(sum * 1e9)};
}

}  // namespace headrace::session
