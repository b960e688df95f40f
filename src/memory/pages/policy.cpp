// SPDX-License-Identifier: Apache-2.0
#include "memory/pages/policy.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>

#include "core/check.h"

namespace headrace {
namespace {

// Since Linux 5.15 and 6.9; older headers lack them.
constexpr int kPreferredMany = 5;
constexpr int kWeightedInterleave = 6;

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
    constexpr std::size_t kBits = 8 * sizeof(unsigned long);
    for (const NodeId node : nodes) {
      if (words_.size() <= raw(node) / kBits) words_.resize(raw(node) / kBits + 1);
      words_[raw(node) / kBits] |= 1UL << (raw(node) % kBits);
    }
  }
  const unsigned long* data() const { return words_.data(); }
  // The kernel reads one bit less than this number.
  unsigned long bits() const { return words_.size() * 8 * sizeof(unsigned long) + 1; }

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

std::vector<NodeWeight> kernel_weights(const std::filesystem::path& folder) {
  constexpr std::string_view kNode = "node";
  std::vector<NodeWeight> weights;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kNode)) continue;
    std::uint32_t node = 0;
    const auto [end, bad] =
        std::from_chars(name.data() + kNode.size(), name.data() + name.size(), node);
    unsigned weight = 0;
    if (bad != std::errc{} || end != name.data() + name.size()) continue;
    if (std::ifstream(entry.path()) >> weight) weights.push_back({NodeId{node}, weight});
  }
  std::ranges::sort(weights, {}, &NodeWeight::node);
  return weights;
}

int page_nodes(std::span<void*> addresses, std::span<int> nodes) {
  CHECK(addresses.size() == nodes.size());
  return ::syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nullptr, nodes.data(),
                   0) == 0
             ? 0
             : errno;
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
