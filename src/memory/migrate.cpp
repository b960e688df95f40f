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

Status bind_pages(std::span<std::byte> pages, NodeId node) {
  std::array<unsigned long, 16> mask{};  // 1024 nodes, the kernel's most
  constexpr unsigned kBits = 8 * sizeof mask[0];
  const unsigned id = raw(node);
  if (id >= mask.size() * kBits) {
    return fail(ErrorCode::unsupported, "node {} is no memory of the kernel's; see headrace topo",
                id);
  }
  mask[id / kBits] |= 1UL << (id % kBits);
  if (syscall(SYS_mbind, pages.data(), pages.size(), MPOL_BIND, mask.data(), mask.size() * kBits,
              MPOL_MF_MOVE) != 0) {
    return fail_errno(errno, fmt::format("cannot move pages to node {}", id));
  }
  return {};
}

Result<std::uint64_t> move_pages_to(std::span<void* const> addresses, NodeId node) {
  const int id = static_cast<int>(raw(node));
  const std::vector<int> nodes(addresses.size(), id);
  std::vector<int> status(addresses.size(), -1);
  if (syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nodes.data(), status.data(),
              MPOL_MF_MOVE) < 0) {
    return fail_errno(errno, fmt::format("cannot move pages to node {}", id));
  }
  const auto there = static_cast<std::uint64_t>(std::ranges::count(status, id));
  return addresses.size() - there;
}

}  // namespace headrace
