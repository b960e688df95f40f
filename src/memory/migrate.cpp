// SPDX-License-Identifier: Apache-2.0
#include "memory/memory.h"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "core/fail.h"

namespace headrace {
namespace {

constexpr unsigned kNodes = 1024;  // the kernel's maximum
constexpr unsigned kBits = 8 * sizeof(unsigned long);
using Mask = std::array<unsigned long, kNodes / kBits>;

}  // namespace

Status bind_pages(std::span<std::byte> pages, NodeId node) {
  Mask mask{};
  const unsigned id = raw(node);
  if (id >= kNodes) {
    return fail(ErrorCode::unsupported, "node {} is no memory of the kernel's; see headrace topo",
                id);
  }
  mask[id / kBits] |= 1UL << (id % kBits);
  if (syscall(SYS_mbind, pages.data(), pages.size(), MPOL_BIND, mask.data(), kNodes,
              MPOL_MF_MOVE) != 0) {
    return fail_errno(errno, fmt::format("cannot move pages to node {}", id));
  }
  return {};
}

Result<std::uint64_t> move_pages_to(std::span<void* const> addresses, NodeId node) {
  const int id = static_cast<int>(raw(node));
  const std::vector<int> nodes(addresses.size(), id);
  std::vector<int> status(addresses.size(), -1);
  const std::int64_t result = move_pages(addresses, nodes.data(), status.data());
  if (result < 0) {
    return fail_errno(static_cast<int>(-result), fmt::format("cannot move pages to node {}", id));
  }
  const auto there = static_cast<std::uint64_t>(std::ranges::count(status, id));
  return addresses.size() - there;
}

std::int64_t move_pages(std::span<void* const> addresses, const int* nodes, int* status, int pid) {
  const long result = syscall(SYS_move_pages, pid, addresses.size(), addresses.data(), nodes,
                              status, nodes == nullptr ? 0 : MPOL_MF_MOVE);
  return result < 0 ? -errno : result;
}

std::optional<std::vector<NodeId>> bound_nodes() {
  Mask mask{};
  int policy = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &policy, mask.data(), kNodes, nullptr, 0) != 0) return {};
  if ((policy & ~MPOL_MODE_FLAGS) != MPOL_BIND) return {};
  std::vector<NodeId> nodes;
  for (unsigned id = 0; id < kNodes; ++id) {
    if ((mask[id / kBits] >> (id % kBits) & 1) != 0) nodes.push_back(NodeId{id});
  }
  return nodes;
}

}  // namespace headrace
