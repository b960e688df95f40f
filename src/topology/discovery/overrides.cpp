// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <vector>

#include "core/fail.h"
#include "core/text/printable.h"

namespace headrace {
namespace {

using Overrides = std::map<unsigned, Override>;

constexpr std::string_view kNodes = "HEADRACE_NODES";
constexpr std::string_view kHbwNodes = "MEMKIND_HBW_NODES";

Unexpected malformed(std::string_view text, std::string_view why) {
  return fail(ErrorCode::invalid, "{}='{}': {}; write it like 8-15=hbm,2=cxl", kNodes,
              printable(text), printable(why));
}

// Adds one "ids=kind" of `text`; `ids` may hold commas: "1,3=hbm" is two nodes.
Status add(Overrides& overrides, std::string_view text, std::string_view ids,
           std::string_view kind_text) {
  const auto nodes = parse_cpu_list(ids);
  if (!nodes || nodes->empty()) {
    return malformed(text, fmt::format("'{}' is no list of nodes", ids));
  }
  const auto kind = parse_node_kind(kind_text);
  if (!kind) return malformed(text, kind.error().message);
  if (*kind == NodeKind::storage) return malformed(text, "a memory node cannot be storage");
  for (const unsigned node : *nodes) {
    const auto [at, added] = overrides.try_emplace(node, Override{*kind, std::string(kNodes)});
    if (!added && at->second.kind != *kind) {
      return malformed(text, fmt::format("node {} is given two kinds", node));
    }
  }
  return {};
}

// Commas separate items, and also the numbers in a list of nodes: an item without '=' belongs to
// the next item's list.
Result<Overrides> parse_nodes(std::string_view text) {
  Overrides overrides;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const auto equals = text.find('=', begin);
    if (equals == std::string_view::npos) {
      return malformed(text, fmt::format("'{}' has no '=kind'", text.substr(begin)));
    }
    auto end = text.find(',', equals);
    if (end != std::string_view::npos && end + 1 == text.size()) {
      return malformed(text, "it ends with a comma");
    }
    if (end == std::string_view::npos) end = text.size();
    HEADRACE_TRY_STATUS(add(overrides, text, text.substr(begin, equals - begin),
                            text.substr(equals + 1, end - equals - 1)));
    begin = end + 1;
  }
  return overrides;
}

}  // namespace

Result<Overrides> parse_overrides(const std::optional<std::string>& nodes,
                                  const std::optional<std::string>& hbw_nodes) {
  HEADRACE_TRY(Overrides overrides, parse_nodes(nodes.value_or("")));
  if (!hbw_nodes || hbw_nodes->empty()) return overrides;
  const auto listed = parse_cpu_list(*hbw_nodes);
  if (!listed || listed->empty()) {
    return fail(ErrorCode::invalid, "{}='{}' is no list of nodes; write it like 8-15", kHbwNodes,
                printable(*hbw_nodes));
  }
  for (const unsigned node : *listed) {
    overrides.try_emplace(node, Override{NodeKind::hbm, std::string(kHbwNodes)});
  }
  return overrides;
}

}  // namespace headrace
