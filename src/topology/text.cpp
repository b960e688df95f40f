// SPDX-License-Identifier: Apache-2.0
// Machine::to_text and overview(): the tree that `headrace topo` prints.

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

#include "headrace/overview.h"

namespace headrace {
namespace {

struct Line {
  std::string label;
  std::string text;
};

// Nodes that differ only in numbers, in the machine's order.
using Alike = std::vector<const Node*>;

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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the number at the start of the text, "12" or "3.5"; 0: no number there.
std::size_t number_at(std::string_view text) {
  const auto digits = [&](std::size_t from) {
    while (from < text.size() && is_digit(text[from])) ++from;
    return from;
  };
  const std::size_t whole = digits(0);
  if (whole == 0 || whole + 1 >= text.size() || text[whole] != '.') return whole;
  const std::size_t end = digits(whole + 1);
  return end == whole + 1 ? whole : end;
}

// Replaces each number in the text by the result of `number`.
template <class Number>
std::string with_numbers(std::string_view text, Number number) {
  std::string made;
  while (!text.empty()) {
    const std::size_t length = number_at(text);
    made += length == 0 ? std::string(1, text.front()) : number(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return made;
}

std::string without_numbers(std::string_view text) {
  return with_numbers(text, [](std::string_view) { return std::string("\n"); });
}

// "0-7" for the numbers 0 to 7, as nodes and CPUs are written; other numbers from the least to the
// greatest.
std::string range_of(const std::set<std::string>& numbers) {
  constexpr std::size_t kLongest = 9;
  std::vector<unsigned> found;
  for (const std::string& number : numbers) {
    if (number.size() > kLongest || number.contains('.')) {
      const auto value = [](const std::string& text) { return std::stod(text); };
      const auto [least, most] = std::ranges::minmax(numbers, {}, value);
      return least + " to " + most;
    }
    found.push_back(static_cast<unsigned>(std::stoul(number)));
  }
  std::ranges::sort(found);
  return to_string(found);
}

// Texts that differ only in numbers, as one text with the range of each differing number.
std::string folded(const std::vector<std::string>& texts) {
  std::vector<std::set<std::string>> seen;
  for (const std::string& text : texts) {
    std::size_t next = 0;
    with_numbers(text, [&](std::string_view number) {
      if (next == seen.size()) seen.emplace_back();
      seen[next++].emplace(number);
      return std::string();
    });
  }
  std::size_t next = 0;
  return with_numbers(texts.front(), [&](std::string_view number) {
    const auto& numbers = seen[next++];
    return numbers.size() == 1 ? std::string(number) : range_of(numbers);
  });
}

// The memory-side cache of a node.
Line side_cache_line(const MemorySideCache& cache) {
  std::string text = fmt::format("{:<9}before the memory", to_string(cache.size));
  for (const std::string& word : {cache.indexing, cache.write_policy}) {
    if (!word.empty()) text += ", " + word;
  }
  return {"side cache", std::move(text)};
}

// Caches of one level and size under one node, counted.
std::vector<Line> cache_lines(const Machine& machine, const Node& node) {
  std::map<std::tuple<unsigned, std::uint64_t>, std::pair<std::size_t, std::size_t>> counted;
  for (const CacheLevel& cache : machine.caches) {
    // A cache of several nodes is printed for each of them.
    const bool own = std::ranges::any_of(
        cache.cpus, [&](unsigned cpu) { return std::ranges::binary_search(node.cpus, cpu); });
    if (!own) continue;
    auto& [count, cpus] = counted[{cache.level, cache.size.value}];
    ++count;
    cpus = std::max(cpus, cache.cpus.size());
  }
  std::vector<Line> lines;
  if (node.side_cache) lines.push_back(side_cache_line(*node.side_cache));
  for (auto at = counted.rbegin(); at != counted.rend(); ++at) {
    const auto& [level, size] = at->first;
    const auto& [count, cpus] = at->second;
    lines.push_back(
        {fmt::format("cache L{}", level),
         fmt::format("{:<8} {} x for {}", to_string(Bytes{size}), count, plural(cpus, "CPU"))});
  }
  return lines;
}

std::vector<Line> engine_lines(const Machine& machine, const Node& node) {
  std::vector<Line> lines;
  for (const Engine& engine : machine.engines) {
    if (engine.home != node.id) continue;
    lines.push_back(
        {fmt::format("engine {}", raw(engine.id)),
         fmt::format("{:<9}{}: {}", to_string(engine.kind), engine.name, engine.reason)});
  }
  return lines;
}

// The lines under similar nodes: caches of each, and engines of all.
std::vector<Line> lines_under(const Machine& machine, const Alike& nodes) {
  std::vector<Line> lines = cache_lines(machine, *nodes.front());
  if (nodes.size() > 1) {
    for (Line& line : lines) line.text += " of each";
  }
  std::vector<std::vector<Line>> engines;
  for (const Node* node : nodes) engines.push_back(engine_lines(machine, *node));
  for (std::size_t i = 0; i < engines.front().size(); ++i) {
    std::vector<std::string> labels;
    std::vector<std::string> texts;
    for (const auto& each : engines) {
      labels.push_back(each[i].label);
      texts.push_back(each[i].text);
    }
    std::string label = folded(labels);
    if (nodes.size() > 1) label.replace(0, std::string_view("engine").size(), "engines");
    lines.push_back({std::move(label), folded(texts)});
  }
  return lines;
}

// The text between a node's capacity and its reason.
std::string whereabouts(const Node& node) {
  if (!node.byte_addressable()) return node.name;
  std::string where = node.cpus.empty() ? "no CPUs" : "CPUs " + to_string(node.cpus);
  if (node.socket) where += fmt::format(", socket {}", *node.socket);
  return where;
}

std::string whereabouts(const Alike& nodes) {
  if (nodes.size() == 1 || !nodes.front()->byte_addressable()) return whereabouts(*nodes.front());
  std::vector<unsigned> cpus;
  std::set<std::string> sockets;
  for (const Node* node : nodes) {
    cpus.insert(cpus.end(), node->cpus.begin(), node->cpus.end());
    if (node->socket) sockets.insert(std::to_string(*node->socket));
  }
  std::ranges::sort(cpus);
  std::string where =
      cpus.empty() ? "no CPUs"
                   : fmt::format("{} CPUs each, {}", nodes.front()->cpus.size(), to_string(cpus));
  if (!sockets.empty()) {
    where += fmt::format(", socket{} {}", sockets.size() == 1 ? "" : "s", range_of(sockets));
  }
  return where;
}

std::string capacity(const Alike& nodes) {
  const auto& of_first = nodes.front()->capacity;
  const std::string one = of_first ? to_string(*of_first) : "unknown";
  return nodes.size() == 1 ? one : fmt::format("{} x {}", nodes.size(), one);
}

// The common text of similar nodes. Kernel and firmware reserve different small amounts, so
// capacities are equal if they are equal when written with two digits.
std::string likeness(const Machine& machine, const Node& node) {
  std::string text = fmt::format(
      "{}|{}|{}|{}", to_string(node.kind), node.cpus.size(), node.socket.has_value(),
      node.capacity ? fmt::format("{:.2g}", static_cast<double>(node.capacity->value)) : "");
  // Storage devices differ by name.
  text += node.byte_addressable() ? "" : node.name;
  text += without_numbers(node.reason);
  for (const Line& line : cache_lines(machine, node))
    text += fmt::format("|{}{}", line.label, line.text);
  for (const Line& line : engine_lines(machine, node))
    text += fmt::format("|{}", without_numbers(line.text));
  return text;
}

std::vector<Alike> grouped(const Machine& machine) {
  std::vector<Alike> groups;
  std::map<std::string, std::size_t> known;
  for (const Node& node : machine.nodes) {
    const auto [at, first] = known.try_emplace(likeness(machine, node), groups.size());
    if (first) groups.emplace_back();
    groups[at->second].push_back(&node);
  }
  return groups;
}

constexpr std::size_t kLabel = 10;

struct Columns {
  std::size_t label = kLabel;
  std::size_t capacity = 10;
  std::size_t whereabouts = 0;
};

std::string label(const Alike& nodes) {
  std::vector<unsigned> numbers;
  for (const Node* node : nodes) numbers.push_back(raw(node->id));
  return fmt::format("node{} {}", nodes.size() == 1 ? "" : "s", to_string(numbers));
}

// Column widths for all nodes, except whereabouts that are too long for a column.
Columns columns_of(const std::vector<Alike>& groups) {
  constexpr std::size_t kWidest = 32;
  Columns columns;
  for (const Alike& nodes : groups) {
    columns.label = std::max(columns.label, label(nodes).size());
    columns.capacity = std::max(columns.capacity, capacity(nodes).size());
    columns.whereabouts =
        std::max(columns.whereabouts, std::min(whereabouts(nodes).size(), kWidest));
  }
  return columns;
}

std::string node_line(const Alike& nodes, const Columns& columns) {
  std::vector<std::string> reasons;
  for (const Node* node : nodes) reasons.push_back(node->reason);
  return fmt::format("{:<{}} {:<8} {:<{}} {:<{}}  {}", label(nodes), columns.label,
                     to_string(nodes.front()->kind), capacity(nodes), columns.capacity,
                     whereabouts(nodes), columns.whereabouts, folded(reasons));
}

// The known properties of a link besides its ends.
std::string limits_of(const Link& link) {
  std::vector<std::string> known;
  if (!link.reason.empty()) known.push_back(link.reason);
  const auto add = [&](const std::string& what, const std::string& source) {
    known.push_back(source.empty() ? what : what + ", " + source);
  };
  if (link.each_way) add(to_string(*link.each_way) + " each way", link.each_way_source);
  if (link.both_ways) add(to_string(*link.both_ways) + " both ways", link.both_ways_source);
  if (!link.each_way && !link.both_ways) known.emplace_back("limit unknown");
  if (link.latency) add(fmt::format("{} ns", link.latency->count()), link.latency_source);
  return fmt::format("{}", fmt::join(known, "; "));
}

std::string nodes_of(const std::vector<NodeId>& nodes) {
  CpuSet ids;
  for (const NodeId id : nodes) ids.push_back(raw(id));
  std::ranges::sort(ids);
  return to_string(ids);
}

// The ends of one link, or all nodes at the ends of several links.
std::string joined(const std::vector<const Link*>& links) {
  if (links.size() == 1) return nodes_of(links[0]->a) + " with " + nodes_of(links[0]->b);
  std::set<NodeId> nodes;
  for (const Link* link : links) {
    nodes.insert(link->a.begin(), link->a.end());
    nodes.insert(link->b.begin(), link->b.end());
  }
  return nodes_of({nodes.begin(), nodes.end()});
}

// One line per link, or per group of links of one kind with the same properties.
std::string link_lines(const Machine& machine, bool each) {
  std::vector<std::pair<std::string, std::vector<const Link*>>> groups;
  for (const Link& link : machine.links) {
    std::string text = fmt::format("{}|{}", to_string(link.kind), limits_of(link));
    const auto same = std::ranges::find(groups, text, &decltype(groups)::value_type::first);
    if (each || same == groups.end()) {
      groups.push_back({std::move(text), {&link}});
    } else {
      same->second.push_back(&link);
    }
  }
  std::string text;
  for (const auto& [likeness, links] : groups) {
    text += fmt::format("{:<7} {:<8} nodes {}: {}\n",
                        links.size() == 1 ? "link" : fmt::format("{} links", links.size()),
                        to_string(links[0]->kind), joined(links), limits_of(*links[0]));
  }
  return text;
}

std::string tree(const Machine& machine, const std::vector<Alike>& groups) {
  std::string text = headline(machine);
  const Columns columns = columns_of(groups);
  for (const Alike& group : groups) {
    const bool last = &group == &groups.back();
    text += fmt::format("{} {}\n", last ? "└─" : "├─", node_line(group, columns));
    const auto lines = lines_under(machine, group);
    std::size_t width = kLabel;
    for (const Line& line : lines) width = std::max(width, line.label.size());
    for (const Line& line : lines) {
      text += fmt::format("{}  {} {:<{}} {}\n", last ? " " : "│",
                          &line == &lines.back() ? "└─" : "├─", line.label, width, line.text);
    }
  }
  text += link_lines(machine, groups.size() == machine.nodes.size());
  if (const std::size_t rates = machine.copy_rates.size(); rates != 0) {
    text += plural(rates, "copy rate") + "\n";
  }
  if (const std::string why = cache_mode(machine); !why.empty()) text += why + "\n";
  for (const std::string& warning : machine.warnings) text += fmt::format("! {}\n", warning);
  return text;
}

}  // namespace

std::string Machine::to_text() const {
  std::vector<Alike> each;
  for (const Node& node : nodes) each.push_back({&node});
  return tree(*this, each);
}

std::string overview(const Machine& machine) { return tree(machine, grouped(machine)); }

}  // namespace headrace
