// SPDX-License-Identifier: Apache-2.0
#include "measure/session/experiment.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "headrace/placement.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/alike.h"
#include "topology/topology.h"

namespace headrace::session {
namespace {

const Parameter* find_parameter(std::span<const Parameter> parameters, std::string_view name) {
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  return found == parameters.end() ? nullptr : &*found;
}

// As a request it selects rows without the parameter.
const ParameterValue kNone = std::string();

// All requested values of one parameter.
std::vector<ParameterValue> values_of(const ParameterChoice& choice) {
  if (const auto* several = std::get_if<std::vector<ParameterValue>>(&choice)) return *several;
  if (const auto* number = std::get_if<std::uint64_t>(&choice)) return {*number};
  return {std::get<std::string>(choice)};
}

template <class T>
std::vector<T> chosen(const Scope& scope, const std::string& parameter) {
  std::vector<T> found;
  const auto choice = scope.only.find(parameter);
  if (choice == scope.only.end()) return found;
  for (const ParameterValue& value : values_of(choice->second)) {
    if (const T* wanted = std::get_if<T>(&value)) found.push_back(*wanted);
  }
  return found;
}

// Whether the nodes of a row are of the requested kind, or the requested node.
bool are_those(const Machine& machine, const ParameterValue& value, const ParameterValue& asked) {
  const CpuSet ids = nodes_of(value);
  if (const auto* id = std::get_if<std::uint64_t>(&asked)) return ids == CpuSet{unsigned(*id)};
  return !ids.empty() && std::ranges::all_of(ids, [&](unsigned id) {
    const Node* node = machine.find(NodeId{id});
    return node != nullptr && to_string(node->kind) == std::get<std::string>(asked);
  });
}

}  // namespace

CpuSet nodes_of(const ParameterValue& value) {
  if (const auto* id = std::get_if<std::uint64_t>(&value)) return {static_cast<unsigned>(*id)};
  return parse_cpu_list(std::get<std::string>(value)).value_or(CpuSet{});
}

void add_counted(Sample& sample, const BusMeter& bus, std::optional<double> counted, double moved,
                 double rate) {
  if (!counted || moved <= 0) return;
  sample.details["bus_counted"] = *counted / moved * rate;
  sample.words["counted_by"] = bus.words();
}

Row make_row(std::string_view experiment, std::span<const Parameter> parameters,
             std::vector<ParameterValue> values, std::string_view unit) {
  CHECK(values.size() == parameters.size());
  Row row{.experiment = std::string(experiment), .unit = std::string(unit)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    row.parameters.emplace_back(parameters[i].name, std::move(values[i]));
  }
  return row;
}

bool Scope::asks(const std::string& parameter) const {
  const auto choice = only.find(parameter);
  return choice != only.end() &&
         std::ranges::any_of(values_of(choice->second),
                             [](const auto& value) { return value != kNone; });
}

std::vector<std::uint64_t> Scope::numbers(const std::string& parameter) const {
  return chosen<std::uint64_t>(*this, parameter);
}

std::vector<std::string> Scope::words(const std::string& parameter) const {
  return chosen<std::string>(*this, parameter);
}

std::shared_ptr<BusMeter> Scope::bus_of(const std::vector<NodeId>& nodes) const {
  const bool all = std::ranges::all_of(nodes, [&](NodeId id) {
    const Node* const node = machine.find(id);
    return node != nullptr && bus->counts(*node);
  });
  return all ? bus : std::make_shared<BusMeter>();
}

bool Scope::wants(const Row& row, std::span<const Parameter> parameters) const {
  const bool teams = std::ranges::any_of(parameters, [&](const Parameter& each) {
    return each.of_teams && asks(std::string(each.name));
  });
  return std::ranges::all_of(only, [&](const auto& wanted) {
    const Parameter* const parameter = find_parameter(parameters, wanted.first);
    const std::vector<ParameterValue> values = values_of(wanted.second);
    const bool none = std::ranges::count(values, kNone) > 0;
    if (parameter == nullptr) return none;
    if (row.parameters.empty()) return true;
    const ParameterValue* own = row.parameter(wanted.first);
    if (own == nullptr) return none;
    return std::ranges::any_of(values, [&](const ParameterValue& value) {
      if (*own == value) return true;
      const bool one = std::holds_alternative<std::uint64_t>(*own);
      return parameter->kind == ParameterKind::node && (one || teams) &&
             are_those(machine, *own, value);
    });
  });
}

bool Scope::may_want(const Row& row, std::span<const Parameter> parameters) const {
  Scope named = *this;
  std::erase_if(named.only, [&](const auto& each) { return row.parameter(each.first) == nullptr; });
  return named.wants(row, parameters);
}

std::string list_of_cpus(std::vector<unsigned> cpus) {
  std::ranges::sort(cpus);
  return to_string(cpus);
}

double fairness(const std::vector<double>& rates) {
  double sum = 0;
  double squares = 0;
  for (const double rate : rates) {
    sum += rate;
    squares += rate * rate;
  }
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(rates.size()) * squares);
}

Bytes past_caches(Row& row, const Machine& machine, const CpuSet& cpus, std::uint64_t times,
                  Bytes least) {
  constexpr Bytes kLeastUnderHypervisor = 512_MiB;
  const Bytes cache = cache_to_pass(machine, cpus);
  if (is_virtual(machine)) least = std::max(least, kLeastUnderHypervisor);
  if (caches_believed(machine, cpus)) return std::max(cache * times, least);
  row.add_flag("cache_doubted");
  return std::max(cache * kCachesPassed, least);
}

void flag_partly_cached(std::vector<Row>& rows) {
  constexpr std::array<std::string_view, 6> kWithBuffers = {"bandwidth", "loaded", "stream",
                                                            "copy",      "split",  "interference"};
  CpuSet found;  // nodes of the CPUs
  for (const Row& row : rows) {
    const auto again = row.details.find("after_walk");
    const std::uint64_t* const node = row.number("cpu_node");
    if (again == row.details.end() || node == nullptr || again->second >= kPassed) continue;
    if (row.has_flag("noisy")) continue;
    found.push_back(static_cast<unsigned>(*node));
  }
  for (Row& row : rows) {
    const ParameterValue* const node = row.parameter("cpu_node");
    if (!row.value || node == nullptr || row.word("state") == "hot" ||
        std::ranges::find(kWithBuffers, row.experiment) == kWithBuffers.end()) {
      continue;
    }
    const bool any = std::ranges::any_of(
        nodes_of(*node), [&](unsigned id) { return std::ranges::find(found, id) != found.end(); });
    if (any) row.add_flag("partly_cached");
  }
}

Nanoseconds touching(Bytes bytes, std::size_t cpus) {
  const double per_ns = 1.5 * static_cast<double>(std::clamp<std::size_t>(cpus, 1, 8));
  return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(bytes.value) / per_ns)};
}

Bytes fit(Row& row, const Node& node, Bytes wanted) {
  const Bytes bytes = fitting(node, wanted);
  if (bytes < wanted) row.add_flag("shrunk");
  mark_side_cached(row, node, bytes);
  return bytes;
}

void mark_side_cached(Row& row, const Node& node, Bytes bytes) {
  if (node.side_cache && bytes <= node.side_cache->size) row.add_flag("side_cached");
}

Point without(Row row, std::string reason) {
  row.reason = std::move(reason);
  row.add_flag("absent");
  Point point;
  point.row = std::move(row);
  return point;
}

std::string ground_of(const Machine& machine, const Node& cpu_node, const Node& memory_node) {
  return fmt::format("{} {}", to_string(memory_node.kind),
                     distance_of(machine, cpu_node, memory_node));
}

bool is_near(const Machine& machine, const Node& cpu_node, const Node& memory_node) {
  return &cpu_node == &memory_node || host_of(machine, memory_node) == &cpu_node;
}

std::vector<const Node*> nodes_with_cpus(const Machine& machine) {
  std::vector<const Node*> nodes;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && !usable_cpus(&node).empty()) nodes.push_back(&node);
  }
  return nodes;
}

bool has_memory(const Node& node) {
  return node.byte_addressable() && node.capacity.value_or(Bytes{0}) > Bytes{0};
}

std::vector<const Node*> memory_nodes(const Machine& machine) {
  std::vector<const Node*> nodes;
  for (const Node& node : machine.nodes) {
    if (has_memory(node)) nodes.push_back(&node);
  }
  return nodes;
}

std::vector<const Node*> one_of_each_kind(const Machine& machine, const Node& node) {
  std::vector<const Node*> nodes;
  if (has_memory(node)) nodes.push_back(&node);
  for (const NodeKind kind : {NodeKind::dram, NodeKind::hbm, NodeKind::cxl}) {
    if (kind == node.kind && !nodes.empty()) continue;
    const auto nearest = resolve(machine, Placement::on(kind), node.id);
    if (nearest) nodes.push_back(machine.find(nearest->nodes.front().node));
  }
  std::erase_if(nodes, [](const Node* each) { return !has_memory(*each); });
  return nodes;
}

}  // namespace headrace::session
