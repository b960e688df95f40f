// Machine::to_text: the tree that `headrace topo` prints.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "headrace/machine.h"

namespace headrace {
namespace {

struct Line {
  std::string label;
  std::string text;
};

std::string plural(std::size_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string headline(const Machine& machine) {
  std::string text = machine.name.empty() ? "machine" : machine.name;
  if (!machine.description.empty() && machine.description != machine.name) {
    text += ": " + machine.description;
  }
  if (!machine.source.empty()) text += fmt::format(" ({})", machine.source);
  return text + "\n";
}

// Caches of one level and size under one node, counted.
std::vector<Line> cache_lines(const Machine& machine, const Node& node) {
  std::map<std::tuple<unsigned, std::uint64_t>, std::pair<std::size_t, std::size_t>> counted;
  for (const CacheLevel& cache : machine.caches) {
    if (cache.cpus.empty() || !std::ranges::binary_search(node.cpus, cache.cpus.front())) continue;
    auto& [count, cpus] = counted[{cache.level, cache.size.value}];
    ++count;
    cpus = std::max(cpus, cache.cpus.size());
  }
  std::vector<Line> lines;
  for (auto at = counted.rbegin(); at != counted.rend(); ++at) {
    const auto& [level, size] = at->first;
    const auto& [count, cpus] = at->second;
    lines.push_back(
        {fmt::format("cache L{}", level),
         fmt::format("{:<9}{} x for {}", to_string(Bytes{size}), count, plural(cpus, "CPU"))});
  }
  return lines;
}

std::vector<Line> lines_under(const Machine& machine, const Node& node) {
  std::vector<Line> lines = cache_lines(machine, node);
  for (const Engine& engine : machine.engines) {
    if (engine.home != node.id) continue;
    lines.push_back(
        {fmt::format("engine {}", raw(engine.id)),
         fmt::format("{:<9}{}: {}", to_string(engine.kind), engine.name, engine.reason)});
  }
  return lines;
}

// What stands between a node's capacity and its reason.
std::string whereabouts(const Node& node) {
  if (!node.byte_addressable()) return node.name;
  std::string where = node.cpus.empty() ? "no CPUs" : "CPUs " + to_string(node.cpus);
  if (node.socket) where += fmt::format(", socket {}", *node.socket);
  return where;
}

// The column that fits all nodes' whereabouts, unless they are too long for a column.
std::size_t column_width(const Machine& machine) {
  constexpr std::size_t kWidest = 32;
  std::size_t width = 0;
  for (const Node& node : machine.nodes) {
    width = std::max(width, std::min(whereabouts(node).size(), kWidest));
  }
  return width;
}

std::string node_line(const Node& node, std::size_t width) {
  return fmt::format("node {:<5} {:<8} {:<10} {:<{}}  {}", raw(node.id), to_string(node.kind),
                     node.capacity ? to_string(*node.capacity) : "unknown", whereabouts(node),
                     width, node.reason);
}

}  // namespace

std::string Machine::to_text() const {
  std::string text = headline(*this);
  const std::size_t width = column_width(*this);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool last = i + 1 == nodes.size();
    text += fmt::format("{} {}\n", last ? "└─" : "├─", node_line(nodes[i], width));
    const auto lines = lines_under(*this, nodes[i]);
    for (const Line& line : lines) {
      text += fmt::format("{}  {} {:<10} {}\n", last ? " " : "│",
                          &line == &lines.back() ? "└─" : "├─", line.label, line.text);
    }
  }
  if (!copy_rates.empty()) text += plural(copy_rates.size(), "copy rate") + "\n";
  for (const std::string& warning : warnings) text += fmt::format("! {}\n", warning);
  return text;
}

}  // namespace headrace
