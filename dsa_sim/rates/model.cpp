// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/rates/model.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/fail.h"
#include "dsa_sim/rates/rates.h"
#include "measure/experiments/dsa/dsa.h"
#include "measure/session/session.h"

namespace headrace::dsa_rates {

using namespace session;

Result<std::vector<Row>> model_dsa(const Machine& machine,
                                   const std::vector<ParameterChoices>& selections, unsigned rounds,
                                   const ExperimentContext& context) {
  const auto model = std::make_shared<const DsaModel>(machine);
  if (model->engines().empty()) {
    return fail(ErrorCode::unsupported, "machine {} has no dsa engine; xeon-max has eight",
                machine.name);
  }
  if (rounds == 0) return fail(ErrorCode::invalid, "no rounds; ask for at least one");
  HEADRACE_TRY(const Machine here, Machine::discover());  // whose cores copy
  const Experiment& experiment = experiment_dsa::kExperiment;
  std::vector<Point> points;
  std::set<std::string> keys;
  Scope scope{.machine = here};
  for (const ParameterChoices& only :
       selections.empty() ? std::vector<ParameterChoices>(1) : selections) {
    scope.only = only;
    for (Point& point : experiment_dsa::points_on(model, scope)) {
      if (scope.wants(point.row, experiment.parameters) && keys.insert(point.row.key()).second) {
        points.push_back(std::move(point));
      }
    }
  }
  if (points.empty()) return fail(ErrorCode::invalid, "no point of dsa has what is asked for");
  const MeasureOptions options{
      .budget = std::nullopt, .rounds = rounds, .repetitions = 1, .noise_checks = false};
  return run_session(here, std::move(points), {}, options, context).rows;
}

}  // namespace headrace::dsa_rates
