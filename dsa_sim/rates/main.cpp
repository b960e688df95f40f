// SPDX-License-Identifier: Apache-2.0
// headrace-dsa-rates: the experiment `dsa` on a model of DSA devices, as JSON.
// `headrace model dsa` runs it.
#include <fmt/core.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "dsa_sim/program.h"
#include "dsa_sim/rates/rates.h"
#include "headrace/measure.h"
#include "measure/experiments/dsa/dsa.h"
#include "measure/session/session.h"
#include "profile/profile.h"

namespace headrace::dsa_rates {
namespace {

using Json = nlohmann::ordered_json;
using namespace session;

constexpr std::string_view kHelp =
    "Usage: headrace-dsa-rates MACHINE ROUNDS SELECTIONS\n\n"
    "Runs the experiment `dsa` on a model of the DSA devices of a machine.\n"
    "`headrace model dsa` runs this program and prints tables.\n\n"
    "MACHINE     preset, or file of headrace topo --json\n"
    "ROUNDS      measurements of each copy by cores of this host\n"
    "SELECTIONS  JSON list of parameter values: [{\"part\": \"route\"}]; []: all points\n\n"
    "Prints {\"rows\": [...]}.\n";

Result<ParameterValue> read_value(const Json& value) {
  if (value.is_string()) return ParameterValue(value.get<std::string>());
  if (value.is_number_unsigned()) return ParameterValue(value.get<std::uint64_t>());
  return fail(ErrorCode::invalid, "{} is no value of a parameter", value.dump());
}

Result<ParameterChoice> read_choice(const Json& value) {
  std::vector<ParameterValue> values;
  for (const Json& each : value.is_array() ? value : Json::array({value})) {
    HEADRACE_TRY(auto read, read_value(each));
    values.push_back(std::move(read));
  }
  return ParameterChoice(std::move(values));
}

Result<std::vector<ParameterChoices>> read_selections(std::string_view text) {
  const Json document = Json::parse(text, nullptr, false);
  if (!document.is_array()) {
    return fail(ErrorCode::invalid, "selections are a JSON list; see --help");
  }
  std::vector<ParameterChoices> selections;
  for (const Json& selection : document) {
    if (!selection.is_object()) {
      return fail(ErrorCode::invalid, "a selection is a JSON object; see --help");
    }
    ParameterChoices& choices = selections.emplace_back();
    for (const auto& [name, value] : selection.items()) {
      HEADRACE_TRY(auto choice, read_choice(value));
      choices.emplace(name, std::move(choice));
    }
  }
  return selections;
}

// Points of the experiment `dsa` (of each selection in turn; none: all) on a model of the devices
// of `machine` (docs/design/dsa-rates.md). The rows are `modelled`, and the same in every run.
// Copies by cores, which the model does not have, are measured on this host, `rounds` times; these
// rows are `measured`.
Result<std::vector<Row>> model_dsa(const Machine& machine,
                                   const std::vector<ParameterChoices>& selections,
                                   unsigned rounds) {
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
  return run_session(here, std::move(points), {}, options, {}).rows;
}

Status run(std::span<const char* const> arguments) {
  if (arguments.size() == 1 && std::string_view(arguments[0]) == "--help") {
    fmt::print("{}", kHelp);
    return {};
  }
  if (arguments.size() != 3) return fail(ErrorCode::invalid, "3 arguments are needed; see --help");
  const std::string_view text = arguments[1];
  unsigned rounds = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), rounds);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    return fail(ErrorCode::invalid, "'{}' is no number of rounds; see --help", text);
  }
  HEADRACE_TRY(const auto selections, read_selections(arguments[2]));
  HEADRACE_TRY(const Machine machine, Machine::load(arguments[0]));
  HEADRACE_TRY(const auto rows, model_dsa(machine, selections, rounds));
  Json document{{"rows", Json::array()}};
  for (const Row& row : rows) document["rows"].push_back(json_of(row));
  fmt::print("{}\n", document.dump());
  return {};
}

}  // namespace
}  // namespace headrace::dsa_rates

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  return headrace::dsa_sim::exit_code("headrace-dsa-rates",
                                      headrace::dsa_rates::run(arguments.subspan(1)));
}
