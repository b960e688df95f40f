// SPDX-License-Identifier: Apache-2.0
#include "model/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/text/json.h"
#include "core/text/printable.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLastId = std::numeric_limits<std::uint32_t>::max();

Estimate read_share(const JsonReader& at) {
  if (at.is_number()) return Estimate::exactly(at.as_number());
  std::vector<double> ends;
  at.items([&](const JsonReader& each) { ends.push_back(each.as_number()); });
  if (ends.size() == 3 && ends[1] <= ends[0] && ends[0] <= ends[2]) {
    return {.value = ends[0], .low = ends[1], .high = ends[2]};
  }
  at.wrong("", "must be a number, or [value, low, high]");
  return {};
}

FlowAccess read_access(const JsonReader& at) {
  FlowAccess access{.node = NodeId{static_cast<std::uint32_t>(at.integer("node", kLastId))},
                    .bytes = at.number("bytes"),
                    .latency_ns = at.optional_number("latency_ns"),
                    .request_bytes = at.optional_number("request_bytes"),
                    .side_cache_dirty = at.optional_number("side_cache_dirty")};
  const auto kind = kAccessKinds.parse(at.required_text("kind"));
  if (!kind) at.wrong("kind", kind.error().message);
  if (kind) access.kind = *kind;
  if (const auto hits = at.child("side_cache_hits")) access.side_cache_hits = read_share(*hits);
  return access;
}

Flow read_flow(const JsonReader& at, const Machine& machine) {
  Flow flow{.name = at.required_text("name"),
            .threads = at.optional_number("threads").value_or(1),
            .in_flight_bytes = at.optional_number("in_flight_bytes"),
            .in_flight_uncertainty = at.optional_number("in_flight_uncertainty").value_or(0),
            .cap_bytes_per_second = at.optional_number("cap_bytes_per_second")};
  if (at.field("engine") != nullptr) {
    const std::string name = at.text("engine");
    const auto engine = std::ranges::find(machine.engines, name, &Engine::name);
    if (engine == machine.engines.end()) {
      at.wrong("engine", fmt::format("no engine '{}'", printable(name)));
    } else {
      flow.engine = engine->id;
    }
  } else {
    flow.initiator = NodeId{static_cast<std::uint32_t>(at.integer("initiator", kLastId))};
  }
  if (const std::string list = at.text("cpus"); !list.empty()) {
    auto cpus = parse_cpu_list(list);
    if (!cpus) at.wrong("cpus", cpus.error().message);
    if (cpus) flow.cpus = *std::move(cpus);
  }
  at.elements("accesses",
              [&](const JsonReader& each) { flow.accesses.push_back(read_access(each)); });
  return flow;
}

Result<std::vector<Flow>> read_flows(std::string_view text, const Machine& machine) {
  HEADRACE_TRY(const Json document, parse_document(text));
  std::optional<Error> error;
  std::vector<Flow> flows;
  const auto each = [&](const JsonReader& at) { flows.push_back(read_flow(at, machine)); };
  const JsonReader reader(document, "", error);
  if (document.is_array()) {
    reader.items(each);
  } else {
    reader.elements("flows", each);
  }
  if (error) return Unexpected(*std::move(error));
  if (flows.empty()) return fail(ErrorCode::invalid, "flows: must have at least one flow");
  return flows;
}

Json json_of(const Evidence& evidence) {
  return {{"basis", kConstantBases.of(evidence.basis)},
          {"source", evidence.source},
          {"fitted_to", evidence.fitted_to}};
}

Json json_of(const Solver& solver, const Flow& flow, const FlowResult& result) {
  return {{"name", flow.name},
          {"rate", result.rate},
          {"rate_low", result.rate_low},
          {"rate_high", result.rate_high},
          {"latency_ns", result.latency_ns},
          {"access_latency_ns", result.access_latency_ns},
          {"limit", solver.text_of(result.limit, flow)},
          {"elasticity", result.limit.elasticity}};
}

Json json_of(const Ceiling& ceiling, const CeilingLoad& load) {
  Json json{{"name", ceiling.name},
            {"kind", kCeilingKinds.of(ceiling.kind)},
            {"load", load.load},
            {"bandwidth", load.bandwidth},
            {"utilisation", load.load / load.bandwidth},
            {"write_share", load.write_share},
            {"queue_ns", load.queue_ns}};
  json.update(json_of(ceiling.evidence));
  return json;
}

// Idle latencies of the machine that took part, each once.
Json latencies_of(const Solver& solver, const Machine& machine, const std::vector<Flow>& flows) {
  Json found = Json::array();
  for (const Flow& flow : flows) {
    const NodeId initiator = flow.engine ? machine.find(*flow.engine)->home : flow.initiator;
    for (const FlowAccess& access : flow.accesses) {
      if (access.latency_ns) continue;
      const auto latency = solver.idle_latency(initiator, access.node);
      if (!latency) continue;
      Json json{{"from", raw(initiator)},
                {"to", raw(access.node)},
                {"read_ns", latency->read_ns},
                {"write_ns", latency->write_ns.value_or(latency->read_ns)}};
      json.update(json_of(latency->evidence));
      if (std::ranges::find(found, json) == found.end()) found.push_back(std::move(json));
    }
  }
  return found;
}

}  // namespace

Result<JsonSolver> JsonSolver::create(std::string_view text) {
  HEADRACE_TRY(Machine machine, Machine::from_json(text));
  HEADRACE_TRY(Solver solver, Solver::create(machine));
  return JsonSolver(std::move(machine), std::move(solver));
}

Result<std::string> JsonSolver::solve(std::string_view text) const {
  HEADRACE_TRY(const std::vector<Flow> flows, read_flows(text, machine_));
  HEADRACE_TRY(const Solution solution, solver_.solve_with_interval(flows));
  Json document{{"bound", solver_.model().bound},
                {"flows", Json::array()},
                {"ceilings", Json::array()},
                {"latencies", latencies_of(solver_, machine_, flows)}};
  for (std::size_t i = 0; i < flows.size(); ++i) {
    document["flows"].push_back(json_of(solver_, flows[i], solution.flows[i]));
  }
  for (std::size_t c = 0; c < solution.ceilings.size(); ++c) {
    if (solution.ceilings[c].load <= 0) continue;
    document["ceilings"].push_back(json_of(solver_.model().ceilings[c], solution.ceilings[c]));
  }
  return print_document(document);
}

}  // namespace headrace
