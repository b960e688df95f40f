// SPDX-License-Identifier: Apache-2.0
// The links between a host's nodes, as far as sysfs shows them.
//
// Limits are those of the wires at their current speed. No file has the limit of links between
// sockets, or the links between tiles. Thread-compatible.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"

namespace headrace {

// A node that is not memory of a socket, and its connection to one.
struct AttachedNode {
  NodeId node;
  LinkKind kind;
  std::vector<std::filesystem::path> functions;  // the PCI functions, in sysfs, on its data path
  std::optional<NodeId> near;                    // a node of its socket
};

// The PCI functions on the data path of a disk, given by its directory in sysfs; of the devices of
// a CXL region; or of a PCI address. Only functions whose link speed sysfs shows.
std::vector<std::filesystem::path> functions_of_disk(const std::filesystem::path& disk);
std::vector<std::filesystem::path> functions_of_region(const std::filesystem::path& sysfs,
                                                       const std::string& region);
std::vector<std::filesystem::path> functions_at(const std::filesystem::path& sysfs,
                                                const std::string& address);

// The links between the machine's sockets, and those of attached nodes to their sockets. Nodes
// behind the same functions share a link.
std::vector<Link> find_links(const Machine& machine, const std::vector<AttachedNode>& attached);

}  // namespace headrace
