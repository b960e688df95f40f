// SPDX-License-Identifier: Apache-2.0
// The user's word on node kinds: HEADRACE_NODES and memkind's MEMKIND_HBW_NODES.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "headrace/machine.h"

namespace headrace {

struct Override {
  NodeKind kind;
  std::string source;  // "HEADRACE_NODES", "MEMKIND_HBW_NODES"
};

// Kinds by node. HEADRACE_NODES ("8-15=hbm,2=cxl") wins over MEMKIND_HBW_NODES ("8-15": hbm).
// Empty texts say nothing. invalid: malformed, or a node given two kinds; with the format.
Result<std::map<unsigned, Override>> parse_overrides(const std::optional<std::string>& nodes,
                                                     const std::optional<std::string>& hbw_nodes);

}  // namespace headrace
