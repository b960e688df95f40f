#include "measure/experiment.h"

#include <algorithm>
#include <array>

#include "headrace/placement.h"
#include "measure/team.h"

namespace headrace {
namespace {

// Parameters whose number is a node.
constexpr std::array<std::string_view, 11> kNodeParameters = {
    "cpu_node", "memory_node", "traffic_cpu_node",  "traffic_memory_node", "from", "to", "a", "b",
    "c",        "node",        "aggressor_cpu_node"};

bool is_of_kind(const Machine& machine, std::string_view parameter, const ParameterValue& value,
                const ParameterValue& kind) {
  const auto* id = std::get_if<std::uint64_t>(&value);
  const auto* word = std::get_if<std::string>(&kind);
  if (id == nullptr || word == nullptr) return false;
  if (std::ranges::find(kNodeParameters, parameter) == kNodeParameters.end()) return false;
  const Node* node = machine.find(NodeId{static_cast<std::uint32_t>(*id)});
  return node != nullptr && to_string(node->kind) == *word;
}

}  // namespace

bool Scope::wants(const Row& row) const {
  return std::ranges::all_of(only, [&](const auto& wanted) {
    const auto& [name, value] = wanted;
    const ParameterValue* own = row.parameter(name);
    return own != nullptr && (*own == value || is_of_kind(machine, name, *own, value));
  });
}

Bytes fit(Row& row, const Node& node, Bytes wanted) {
  const Bytes bytes = fitting(node, wanted);
  const bool told = std::ranges::find(row.flags, "shrunk") != row.flags.end();
  if (bytes < wanted && !told) row.flags.emplace_back("shrunk");
  return bytes;
}

Point without(Row row, std::string reason) {
  row.reason = std::move(reason);
  Point point;
  point.row = std::move(row);
  return point;
}

std::vector<const Node*> nodes_with_cpus(const Machine& machine) {
  std::vector<const Node*> nodes;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && !usable_cpus(&node).empty()) nodes.push_back(&node);
  }
  return nodes;
}

std::vector<const Node*> memory_nodes(const Machine& machine) {
  std::vector<const Node*> nodes;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && node.capacity) nodes.push_back(&node);
  }
  return nodes;
}

std::vector<const Node*> one_of_each_kind(const Machine& machine, const Node& node) {
  std::vector<const Node*> nodes;
  if (node.capacity) nodes.push_back(&node);
  for (const NodeKind kind : {NodeKind::dram, NodeKind::hbm, NodeKind::cxl}) {
    if (kind == node.kind && !nodes.empty()) continue;
    const auto nearest = resolve(machine, Placement::on(kind), node.id);
    if (nearest) nodes.push_back(machine.find(nearest->nodes.front().node));
  }
  std::erase_if(nodes, [](const Node* each) { return !each->capacity; });
  return nodes;
}

}  // namespace headrace
