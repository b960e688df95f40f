// SPDX-License-Identifier: Apache-2.0
// Parses placements in their text format.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <ranges>

#include "core/fail.h"
#include "headrace/placement.h"
#include "place/ranked.h"
#include "topology/topology.h"

namespace headrace {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (const auto part : text | std::views::split(separator)) parts.emplace_back(part);
  return parts;
}

// Replaces '-' between words, which people may write, by '_'.
std::string word_of(std::string_view text) {
  std::string word(text);
  std::ranges::replace(word, '-', '_');
  return word;
}

// "hbm_interleave", "hbm_first_touch".
std::optional<Placement> distributed_kind_of(std::string_view text) {
  const std::string word = word_of(text);
  const auto end = word.find('_');
  const auto kind = kNodeKinds.find(std::string_view(word).substr(0, end));
  if (!kind || end == std::string::npos) return std::nullopt;
  for (const Distribution distribution : {Distribution::first_touch, Distribution::interleave}) {
    if (word.substr(end + 1) == to_string(distribution)) {
      return Placement{.kind = kind, .distribution = distribution};
    }
  }
  return std::nullopt;
}

Unexpected unknown(std::string_view text) {
  if (!text.empty() && text.find_first_not_of("0123456789,-") == std::string_view::npos) {
    return fail(ErrorCode::invalid,
                "'{}' is no list of nodes of any machine; write it like 0-3,8 (headrace topo shows "
                "which there are)",
                text.substr(0, 80));
  }
  return fail(ErrorCode::invalid,
              "'{}' is no kind, property or list of nodes; write {}, {}, or nodes like 0-3,8",
              text.substr(0, 80), fmt::join(kNodeKinds.all(), ", "),
              fmt::join(kProperties.all(), ", "));
}

// Node numbers; nothing: not a list of numbers.
std::optional<std::vector<NodeId>> nodes_in(std::string_view text) {
  const auto numbers = parse_cpu_list(text);
  if (!numbers || numbers->empty()) return std::nullopt;
  std::vector<NodeId> nodes;
  for (const unsigned number : *numbers) nodes.emplace_back(NodeId{number});
  return nodes;
}

struct Weight {
  std::string_view who;
  unsigned weight = 0;
};

Result<Weight> weight_in(std::string_view item) {
  const auto equals = item.find('=');
  if (equals == std::string_view::npos) {
    return fail(ErrorCode::invalid, "'{}' has no weight; write them all like dram=3,cxl=1",
                item.substr(0, 80));
  }
  const std::string_view digits = item.substr(equals + 1);
  unsigned weight = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), weight);
  const bool number = error == std::errc{} && end == digits.data() + digits.size();
  if (!number || weight == 0 || weight > kMaxWeight) {
    return fail(ErrorCode::invalid, "'{}' is no weight; give a whole number from 1 to {}",
                item.substr(0, 80), kMaxWeight);
  }
  return Weight{item.substr(0, equals), weight};
}

// The weight of each node if a kind as a whole has its weight, in whole numbers. With
// "dram=3,cxl=1" and eight nodes of DRAM and one of CXL, these get 3 each and the CXL node 8.
Result<std::vector<NodeWeight>> weights_of(
    const Machine& machine, const std::vector<std::pair<NodeKind, unsigned>>& kinds) {
  std::vector<Placement> of_kinds;
  std::uint64_t turns = 1;
  for (const auto& [kind, weight] : kinds) {
    HEADRACE_TRY(Placement nodes, resolve(machine, Placement::interleave(kind)));
    turns = std::lcm(turns, nodes.nodes.size());
    of_kinds.push_back(std::move(nodes));
  }
  std::vector<std::uint64_t> each;
  std::uint64_t common = 0;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    each.push_back(kinds[i].second * (turns / of_kinds[i].nodes.size()));
    common = std::gcd(common, each.back());
  }
  std::vector<NodeWeight> weights;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::uint64_t weight = each[i] / common;
    if (weight > kMaxWeight) {
      return fail(ErrorCode::invalid,
                  "spread over its nodes {} would need weight {}, more than {}; name nodes instead",
                  to_string(kinds[i].first), weight, kMaxWeight);
    }
    for (const NodeWeight& node : of_kinds[i].nodes) {
      weights.push_back({node.node, static_cast<unsigned>(weight)});
    }
  }
  return weights;
}

Result<Placement> parse_weights(const Machine& machine, std::string_view text) {
  std::vector<NodeWeight> nodes;
  std::vector<std::pair<NodeKind, unsigned>> kinds;
  for (const std::string_view item : split(text, ',')) {
    HEADRACE_TRY(const Weight weight, weight_in(item));
    if (const auto kind = kNodeKinds.find(weight.who)) {
      kinds.emplace_back(*kind, weight.weight);
    } else if (const auto named = nodes_in(weight.who)) {
      for (const NodeId node : *named) nodes.push_back({node, weight.weight});
    } else {
      return unknown(weight.who);
    }
  }
  if (!kinds.empty() && !nodes.empty()) {
    return fail(ErrorCode::invalid, "'{}' weighs kinds and nodes; name only one of the two",
                text.substr(0, 80));
  }
  if (!kinds.empty()) {
    HEADRACE_TRY(nodes, weights_of(machine, kinds));
  }
  return Placement::weighted(std::move(nodes));
}

Result<Placement> parse_first(const Machine& machine, std::string_view text) {
  if (text.contains('=')) return parse_weights(machine, text);
  if (const auto kind = kNodeKinds.find(text)) return Placement::on(*kind);
  if (auto kind = distributed_kind_of(text)) return *std::move(kind);
  if (const auto property = kProperties.find(word_of(text))) return Placement::on(*property);
  if (const auto nodes = nodes_in(text)) return Placement::interleave(*nodes);
  return unknown(text);
}

}  // namespace

Result<Placement> Placement::parse(const Machine& machine, std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.empty()) return unknown(text);
  HEADRACE_TRY(Placement placement, parse_first(machine, parts.front()));
  placement.strict = parts.size() == 1;
  for (const std::string_view part : parts | std::views::drop(1)) {
    if (const auto kind = kNodeKinds.find(part)) {
      placement.spill.emplace_back(*kind);
    } else if (const auto nodes = nodes_in(part)) {
      for (const NodeId node : *nodes) placement.spill.emplace_back(node);
    } else if (kProperties.find(word_of(part))) {
      return fail(ErrorCode::invalid, "'{}' can only come first; spill to kinds or nodes",
                  part.substr(0, 80));
    } else {
      return unknown(part);
    }
  }
  // Absent nodes are reported here and not at the allocation.
  HEADRACE_TRY_STATUS(resolve_with_storage(machine, placement));
  return placement;
}

std::string Placement::to_text() const {
  std::string text;
  if (kind) text = to_string(*kind);
  if (kind && distribution != Distribution::nearest)
    text += fmt::format("_{}", to_string(distribution));
  if (property) text = to_string(*property);
  const bool equal = std::ranges::all_of(nodes, [](const auto& each) { return each.weight == 1; });
  CpuSet ids;
  for (const NodeWeight& each : nodes) {
    ids.push_back(raw(each.node));
    if (!equal) text += fmt::format("{}{}={}", text.empty() ? "" : ",", ids.back(), each.weight);
  }
  std::ranges::sort(ids);
  if (equal && !ids.empty()) text = to_string(ids);
  for (const NodeChoice& choice : spill) {
    const auto* node = std::get_if<NodeId>(&choice);
    text += node != nullptr ? fmt::format(":{}", raw(*node))
                            : fmt::format(":{}", to_string(std::get<NodeKind>(choice)));
  }
  return text;
}

}  // namespace headrace
