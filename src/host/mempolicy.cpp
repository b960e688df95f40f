// SPDX-License-Identifier: Apache-2.0
#include "host/mempolicy.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "core/check.h"
#include "core/fail.h"
#include "host/nodes.h"

namespace headrace {
namespace {

// Since Linux 5.15 and 6.9; older headers lack them.
constexpr int kPreferredMany = 5;
constexpr int kWeightedInterleave = 6;
constexpr unsigned kMostNodes = 1024;  // the kernel's maximum
constexpr std::size_t kBits = 8 * sizeof(unsigned long);

int mode_of(MemoryPolicy policy) {
  switch (policy) {
    case MemoryPolicy::none: return MPOL_DEFAULT;
    case MemoryPolicy::bind: return MPOL_BIND;
    case MemoryPolicy::preferred: return MPOL_PREFERRED;
    case MemoryPolicy::preferred_many: return kPreferredMany;
    case MemoryPolicy::interleave: return MPOL_INTERLEAVE;
    case MemoryPolicy::weighted_interleave: return kWeightedInterleave;
  }
  CHECK(false);
  return 0;
}

// Nodes as bits of a mask.
class NodeMask {
 public:
  explicit NodeMask(std::span<const NodeId> nodes) {
    for (const NodeId node : nodes) {
      if (words_.size() <= raw(node) / kBits) words_.resize(raw(node) / kBits + 1);
      words_[raw(node) / kBits] |= 1UL << (raw(node) % kBits);
    }
  }
  const unsigned long* data() const { return words_.data(); }
  // The kernel reads one bit less than this number.
  unsigned long bits() const { return words_.size() * kBits + 1; }

 private:
  std::vector<unsigned long> words_;
};

// For kernels before 5.14: stores a zero into each page, which is zero anyway.
void touch_by_store(std::byte* memory, std::size_t length) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < length; at += page) {
    *static_cast<volatile std::byte*>(memory + at) = std::byte{0};
  }
}

}  // namespace

int set_policy(std::byte* memory, std::size_t length, MemoryPolicy policy,
               std::span<const NodeId> nodes, bool move) {
  const NodeMask mask(nodes);
  const unsigned flags = move ? MPOL_MF_MOVE : 0U;
  const long done =
      ::syscall(SYS_mbind, memory, length, mode_of(policy), mask.data(), mask.bits(), flags);
  return done == 0 ? 0 : errno;
}

int set_thread_policy(MemoryPolicy policy, std::span<const NodeId> nodes) {
  const NodeMask mask(nodes);
  return ::syscall(SYS_set_mempolicy, mode_of(policy), mask.data(), mask.bits()) == 0 ? 0 : errno;
}

std::map<NodeId, unsigned> kernel_weights(const HostFiles& files) {
  std::map<NodeId, unsigned> weights;
  const auto names = files.names(std::string(kWeights) + "/node*");
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const auto node = number_after(name.substr(name.rfind('/') + 1), "node");
    const auto weight = number_after(files.text(name), "");
    if (node && weight) weights[NodeId{*node}] = *weight;
  }
  return weights;
}

std::optional<std::vector<NodeId>> bound_nodes() {
  std::array<unsigned long, kMostNodes / kBits> mask{};
  int policy = MPOL_DEFAULT;
  if (::syscall(SYS_get_mempolicy, &policy, mask.data(), kMostNodes, nullptr, 0) != 0) return {};
  if ((policy & ~MPOL_MODE_FLAGS) != MPOL_BIND) return {};
  std::vector<NodeId> nodes;
  for (unsigned id = 0; id < kMostNodes; ++id) {
    if ((mask[id / kBits] >> (id % kBits) & 1) != 0) nodes.push_back(NodeId{id});
  }
  return nodes;
}

Status bind_pages(std::span<std::byte> pages, NodeId node) {
  if (raw(node) >= kMostNodes) {
    return fail(ErrorCode::unsupported, "node {} is no memory of the kernel's; see headrace topo",
                raw(node));
  }
  const int error = set_policy(pages.data(), pages.size(), MemoryPolicy::bind, {&node, 1}, true);
  if (error == 0) return {};
  return fail_errno(error, fmt::format("cannot move pages to node {}", raw(node)));
}

std::int64_t move_pages(std::span<void* const> addresses, const int* nodes, int* status, int pid) {
  const long result = ::syscall(SYS_move_pages, pid, addresses.size(), addresses.data(), nodes,
                                status, nodes == nullptr ? 0 : MPOL_MF_MOVE);
  return result < 0 ? -errno : result;
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

int populate(std::byte* memory, std::size_t length) {
  int error = 0;
  do {
    error = ::madvise(memory, length, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != EINVAL) return error;
  touch_by_store(memory, length);
  return 0;
}

}  // namespace headrace
