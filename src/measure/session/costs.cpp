#include "measure/session/costs.h"

#include <algorithm>
#include <cmath>

#include "measure/session/plan.h"

namespace headrace::session {

void Costs::add(const Point& point, unsigned repetitions) {
  const double part = std::min(1.0, repetitions / kRepetitionsOfCosts);
  Cost cost{.experiment = point.row.experiment,
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

void Costs::learn(std::size_t index, Nanoseconds took) {
  Cost& cost = costs_[index];
  cost.took += seconds(took);
  ++cost.mappings;
  for (Sum* sum : {&all_, &by_experiment_[cost.experiment]}) {
    sum->estimated += estimated(cost);
    sum->took += seconds(took);
  }
}

Nanoseconds Costs::of(std::size_t index) const {
  const auto in_ns = [](double s) { return Nanoseconds{std::llround(s * 1e9)}; };
  const Cost& cost = costs_[index];
  if (cost.mappings > 0) return in_ns(cost.took / static_cast<double>(cost.mappings));
  const auto own = by_experiment_.find(cost.experiment);
  const Sum& sum = own == by_experiment_.end() ? all_ : own->second;
  return in_ns(estimated(cost) * (sum.estimated > 0 ? sum.took / sum.estimated : 1));
}

}  // namespace headrace::session
