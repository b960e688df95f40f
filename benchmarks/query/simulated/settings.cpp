// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/simulated/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "benchmarks/query/simulated/option_reader.h"
#include "core/fail.h"

namespace headrace::simulated {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kModes = {"prefetch", "direct", "resident", "cache"};

// The fast memory of a node: an hbm node that lists it as initiator, else of its socket, else any.
const Node* fast_of(const Machine& machine, const Node& cpus) {
  const auto nodes = machine.of_kind(NodeKind::hbm);
  const auto lists = [&](const Node* node) {
    return std::ranges::any_of(node->access,
                               [&](const auto& one) { return one.initiator == cpus.id; });
  };
  const auto shares = [&](const Node* node) { return node->socket && node->socket == cpus.socket; };
  if (const auto found = std::ranges::find_if(nodes, lists); found != nodes.end()) return *found;
  if (const auto found = std::ranges::find_if(nodes, shares); found != nodes.end()) return *found;
  return nodes.empty() ? nullptr : nodes.front();
}

Result<std::vector<Group>> usual_groups(const Machine& machine, Mode mode) {
  std::vector<Group> groups;
  for (const Node& node : machine.nodes) {
    if (node.cpus.empty()) continue;
    const Node* const fast = fast_of(machine, node);
    const bool needs = mode == Mode::prefetch || mode == Mode::resident;
    if (fast == nullptr && needs) {
      return fail(ErrorCode::absent,
                  "{} has no hbm node; name the nodes in \"groups\", or take the mode direct",
                  machine.name);
    }
    groups.push_back({node.id, node.id, fast == nullptr ? node.id : fast->id});
  }
  if (groups.empty()) return fail(ErrorCode::absent, "{} has no node with CPUs", machine.name);
  return groups;
}

Result<std::vector<Group>> read_groups(const Machine& machine, const Json* array, Mode mode) {
  if (array == nullptr) return usual_groups(machine, mode);
  if (array->is_number_unsigned()) {
    HEADRACE_TRY(std::vector<Group> usual, usual_groups(machine, mode));
    const auto count = array->get<std::size_t>();
    if (count < 1 || count > usual.size()) {
      return fail(ErrorCode::invalid, "{} groups; {} has {} nodes with CPUs", count, machine.name,
                  usual.size());
    }
    usual.resize(count);
    return usual;
  }
  const auto wrong = [] {
    return fail(ErrorCode::invalid,
                "options: \"groups\" must be a list of {{\"cpus\": NODE, \"slow\": NODE, "
                "\"fast\": NODE}}");
  };
  if (!array->is_array() || array->empty()) return wrong();
  std::vector<Group> groups;
  for (const Json& one : *array) {
    std::array<NodeId, 3> nodes{};
    constexpr std::array<const char*, 3> kNames = {"cpus", "slow", "fast"};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (!one.is_object() || !one.contains(kNames[i]) || !one[kNames[i]].is_number_unsigned()) {
        return wrong();
      }
      nodes[i] = NodeId{one[kNames[i]].get<std::uint32_t>()};
      HEADRACE_TRY_STATUS(machine.node(nodes[i]).has_value()
                              ? Status{}
                              : Unexpected(machine.node(nodes[i]).error()));
    }
    if (machine.find(nodes[0])->cpus.empty()) {
      return fail(ErrorCode::invalid, "node {} has no CPUs for a group", raw(nodes[0]));
    }
    groups.push_back({nodes[0], nodes[1], nodes[2]});
  }
  return groups;
}

std::optional<OperatorCost> read_operators(const Json& object) try {
  OperatorCost cost{.cycles_per_second = object.at("cycles_per_second").get<double>(),
                    .vector_bytes = object.at("vector_bytes").get<double>()};
  for (const Json& one : object.at("columns")) {
    cost.columns.push_back({.column = one.at("column").get<std::string>(),
                            .bytes_per_cycle = one.at("bytes_per_cycle").get<double>()});
    if (!(cost.columns.back().bytes_per_cycle > 0)) return std::nullopt;
  }
  if (!(cost.cycles_per_second > 0) || !(cost.vector_bytes > 0)) return std::nullopt;
  return cost;
} catch (const Json::exception&) {
  return std::nullopt;
}

// Members whose default depends on others.
Status complete(const Machine& machine, Settings& settings) {
  HEADRACE_TRY(const auto columns, lineitem_columns_of(settings.query));
  const auto fits = [&](const OperatorCost& cost) {
    return std::ranges::equal(cost.columns, columns, {}, &ColumnCost::column, &Column::name);
  };
  if (settings.operators && !fits(*settings.operators)) {
    return fail(ErrorCode::invalid, "options: \"operators\" are those of another query than {}",
                settings.query);
  }
  if (settings.threads > 0) return {};
  if (settings.aggregators > 0) {
    return fail(ErrorCode::invalid, "options: \"aggregators\" need \"threads\" beside them");
  }
  std::size_t cpus = std::numeric_limits<unsigned>::max();
  for (const Group& group : settings.groups) {
    cpus = std::min(cpus, machine.find(group.cpus)->cpus.size());
  }
  const bool copies = settings.mode == Mode::prefetch && settings.engine == EngineKind::cpu;
  const std::size_t workers = copies ? settings.workers : 0;
  settings.threads = static_cast<unsigned>(cpus > workers ? cpus - workers : 1);
  return {};
}

}  // namespace

Result<Settings> read_settings(const Machine& machine, std::string_view options) {
  const Json object = Json::parse(options, nullptr, false);
  if (!object.is_object()) return fail(ErrorCode::invalid, "options: no JSON object");
  Settings settings;
  OptionReader reader(object);
  reader.read(
      "query", settings.query,
      [](const std::string& name) {
        const auto names = query_names();
        return std::ranges::find(names, name) != names.end();
      },
      fmt::format("{}", fmt::join(query_names(), ", ")));
  if (const auto mode = reader.word("mode", kModes)) settings.mode = static_cast<Mode>(*mode);
  reader.bytes("working_set_bytes", settings.working_set, 1_B);
  reader.count("passes", settings.passes, 1000);
  const Json* const groups = reader.member("groups");
  reader.count("threads", settings.threads, 1024);
  reader.count("aggregators", settings.aggregators, 1024);
  reader.bytes("chunk_bytes", settings.chunk, 4_KiB);
  reader.positive("lead_seconds", settings.lead_seconds);
  reader.bytes("window_bytes", settings.window, 1_B);
  Bytes budget;
  reader.bytes("budget_bytes", budget, 1_B);
  if (budget > 0_B) settings.budget = budget;
  constexpr std::array<std::string_view, 2> kEngines = {"dsa", "cpu"};
  if (const auto engine = reader.word("engine", kEngines)) {
    settings.engine = *engine == 0 ? EngineKind::dsa : EngineKind::cpu;
  }
  constexpr std::array<std::string_view, 4> kRoutes = {"measured", "one", "brute_force", "smart"};
  if (const auto route = reader.word("route", kRoutes)) settings.route = kRoutes[*route];
  reader.count("workers", settings.workers, 64);
  if (const Json* const operators = reader.member("operators")) {
    settings.operators = read_operators(*operators);
    if (!settings.operators) reader.complain("\"operators\" are not those of measure_operators");
  }
  constexpr std::array<std::string_view, 2> kVectors = {"target", "built"};
  if (const auto vectors = reader.word("vectors", kVectors))
    settings.target_vectors = *vectors == 0;
  double lines = 0;
  reader.positive("lines_in_flight", lines);
  if (lines > 0) settings.lines_in_flight = lines;
  reader.read(
      "jitter", settings.jitter, [](double all) { return all >= 0 && all < 1; },
      "a number from 0 to below 1");
  reader.read("seed", settings.seed, [](std::uint64_t) { return true; }, "a whole number");
  HEADRACE_TRY_STATUS(reader.end());
  HEADRACE_TRY(settings.groups, read_groups(machine, groups, settings.mode));
  HEADRACE_TRY_STATUS(complete(machine, settings));
  return settings;
}

nlohmann::ordered_json to_json(const OperatorCost& cost) {
  Json columns = Json::array();
  for (const ColumnCost& one : cost.columns) {
    columns.push_back({{"column", one.column}, {"bytes_per_cycle", one.bytes_per_cycle}});
  }
  return {{"columns", std::move(columns)},
          {"cycles_per_second", cost.cycles_per_second},
          {"vector_bytes", cost.vector_bytes}};
}

Result<RoutePolicy> route_over(const Machine& machine, EngineKind kind, const std::string& policy) {
  HEADRACE_TRY(RoutePolicy choose, place::route_policy(policy));
  Machine part = machine;
  part.engines.clear();
  part.copy_rates.clear();
  std::vector<EngineId> ids;  // by their numbers in `part`
  for (const Engine& engine : machine.engines) {
    if (engine.kind != kind) continue;
    const EngineId own{static_cast<std::uint32_t>(ids.size())};
    ids.push_back(engine.id);
    part.engines.push_back(engine);
    part.engines.back().id = own;
    for (const CopyRate& rate : machine.copy_rates) {
      if (rate.engine != engine.id) continue;
      part.copy_rates.push_back(rate);
      part.copy_rates.back().engine = own;
    }
  }
  return [part = std::move(part), ids = std::move(ids), choose = std::move(choose)](
             const Machine&, const RouteRequest& request) -> Result<Route> {
    HEADRACE_TRY(Route route, choose(part, request));
    for (RoutePart& one : route.parts) one.engine = ids[raw(one.engine)];
    return route;
  };
}

Result<RoutePolicy> route_by(const Machine& machine, const std::string& engine,
                             const std::string& policy) {
  if (engine == "any") return place::route_policy(policy);
  for (const EngineKind kind : {EngineKind::cpu, EngineKind::dsa}) {
    if (engine != to_string(kind)) continue;
    if (std::ranges::find(machine.engines, kind, &Engine::kind) == machine.engines.end()) {
      return fail(ErrorCode::absent, "no engine {}; headrace topo lists engines", engine);
    }
    HEADRACE_TRY(RoutePolicy chosen, route_over(machine, kind, policy));
    HEADRACE_TRY(RoutePolicy any, place::route_policy("measured"));
    return [chosen = std::move(chosen), any = std::move(any)](
               const Machine& all, const RouteRequest& request) -> Result<Route> {
      const auto stores = [&](NodeId id) {
        const Node* const node = all.find(id);
        return node != nullptr && !node->byte_addressable();
      };
      return stores(request.from) || stores(request.to) ? any(all, request) : chosen(all, request);
    };
  }
  return fail(ErrorCode::invalid, "no engine '{}'; there are any, cpu, dsa", engine);
}

}  // namespace headrace::simulated
