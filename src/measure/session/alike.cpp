// SPDX-License-Identifier: Apache-2.0
#include "measure/session/alike.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "headrace/placement.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::session {
namespace {

const Node* near_cpus(const Machine& machine, const Node& node) {
  return node.cpus.empty() ? host_of(machine, node) : &node;
}

// The keys of similar nodes and similar pairs, cached because they are needed often.
class Likeness {
 public:
  explicit Likeness(const Machine& machine) : machine_(machine) {}

  // The key of a point: its parameters other than nodes, and the kind and position of its nodes.
  // "": it has no nodes.
  std::string of(const Row& row, std::span<const Parameter> parameters) {
    std::vector<const Node*> nodes;
    std::string text;
    for (const Parameter& parameter : parameters) {
      const ParameterValue* value = row.parameter(parameter.name);
      if (value == nullptr && !parameter.required) continue;
      if (value == nullptr) return "";
      const Node* node = parameter.kind == ParameterKind::node ? find(*value) : nullptr;
      if (node != nullptr) {
        nodes.push_back(node);
      } else {
        std::visit([&](const auto& v) { text += fmt::format("{} ", v); }, *value);
      }
    }
    if (nodes.empty()) return "";
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      text += of(*nodes[i]);
      for (std::size_t j = 0; j < i; ++j) text += of(*nodes[j], *nodes[i]);
    }
    return text;
  }

 private:
  const Node* find(const ParameterValue& value) const {
    const auto* id = std::get_if<std::uint64_t>(&value);
    return id == nullptr ? nullptr : machine_.find(NodeId{static_cast<std::uint32_t>(*id)});
  }

  const std::string& of(const Node& node) {
    std::string& text = nodes_[&node];
    if (text.empty()) {
      text = fmt::format("{} {};", to_string(node.kind), usable_cpus(&node).size());
    }
    return text;
  }

  const std::string& of(const Node& a, const Node& b) {
    std::string& text = pairs_[{&a, &b}];
    if (text.empty()) {
      const auto rated = a.distances.find(b.id);
      text = fmt::format("{} {} {};", &a == &b, distance_of(machine_, a, b),
                         rated == a.distances.end() ? 0 : rated->second);
    }
    return text;
  }

  const Machine& machine_;
  std::map<const Node*, std::string> nodes_;
  std::map<std::pair<const Node*, const Node*>, std::string> pairs_;
};

std::string nodes_in_words(const Row& row, std::span<const Parameter> parameters) {
  std::string text;
  for (const Parameter& parameter : parameters) {
    const std::uint64_t* id = row.number(parameter.name);
    if (parameter.kind != ParameterKind::node || id == nullptr) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", parameter.name, *id);
  }
  return text;
}

}  // namespace

std::string_view distance_of(const Machine& machine, const Node& a, const Node& b) {
  const Node* const at_a = near_cpus(machine, a);
  const Node* const at_b = near_cpus(machine, b);
  if (&a == &b || (at_a != nullptr && at_a == at_b)) return "near";
  return a.socket && a.socket == b.socket ? "socket" : "far";
}

void measure_alike_once(std::vector<Point>& points, const Machine& machine,
                        std::span<const Parameter> parameters, bool keep_matrices) {
  Likeness likeness(machine);
  std::map<std::string, std::vector<Point*>> alike;
  for (Point& point : points) {
    if (keep_matrices && point.of_matrix) continue;
    const std::string key = likeness.of(point.row, parameters);
    // Points that cannot be measured have their own reason.
    if (!key.empty() && point.row.reason.empty()) alike[key].push_back(&point);
  }
  std::set<const Point*> others;
  for (auto& [key, group] : alike) {
    const auto first = std::ranges::min_element(
        group, {}, [](const Point* point) { return std::pair(point->memory, point); });
    for (Point* point : group) {
      if (point == *first) continue;
      others.insert(point);
      (*first)->row.stands_for.push_back(nodes_in_words(point->row, parameters));
    }
  }
  // Compares addresses before erase_if moves an element.
  std::erase_if(points, [&](const Point& point) { return others.contains(&point); });
}

}  // namespace headrace::session
