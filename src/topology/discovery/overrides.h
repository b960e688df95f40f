// SPDX-License-Identifier: Apache-2.0
// Node kinds set by the user: HEADRACE_NODES and memkind's MEMKIND_HBW_NODES.
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

// Kinds by node. HEADRACE_NODES ("8-15=hbm,2=cxl") has priority over MEMKIND_HBW_NODES ("8-15":
// hbm). Empty texts set nothing.
// Errors: invalid: malformed, or two kinds for a node; the message has the format.
Result<std::map<unsigned, Override>> parse_overrides(const std::optional<std::string>& nodes,
                                                     const std::optional<std::string>& hbw_nodes);

}  // namespace headrace
