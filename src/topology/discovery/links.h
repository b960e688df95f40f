// SPDX-License-Identifier: Apache-2.0
// What joins the nodes of a host, as far as sysfs shows it.
//
// Limits are what the wires take at the speed that they run at now; that of links between sockets
// stands in no file, and how tiles are joined neither. Thread-compatible.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"

namespace headrace {

// A node that is no memory of a socket, and what joins it to one.
struct AttachedNode {
  NodeId node;
  LinkKind kind;
  std::vector<std::filesystem::path> functions;  // of PCI, in sysfs, that its data pass
  std::optional<NodeId> near;                    // a node of the socket it is at
};

// The PCI functions that data of a disk pass, given its directory in sysfs; those of the devices of
// a CXL region; that of an address. Only those that sysfs shows the speed of a link for.
std::vector<std::filesystem::path> functions_of_disk(const std::filesystem::path& disk);
std::vector<std::filesystem::path> functions_of_region(const std::filesystem::path& sysfs,
                                                       const std::string& region);
std::vector<std::filesystem::path> functions_at(const std::filesystem::path& sysfs,
                                                const std::string& address);

// The links between the sockets of the machine, and those of attached nodes to theirs. Nodes behind
// the same functions share a link.
std::vector<Link> find_links(const Machine& machine, const std::vector<AttachedNode>& attached);

}  // namespace headrace
