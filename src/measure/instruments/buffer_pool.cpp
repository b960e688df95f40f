// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/buffer_pool.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <istream>
#include <string>

#include "core/fail.h"
#include "memory/memory.h"

namespace headrace::instruments {
namespace {

// Pages checked per buffer, in evenly spread runs: enough to see a node's balancing, few enough to
// take no time (checking all pages of 1 GiB takes 0.1 s).
constexpr std::uint64_t kRuns = 16;
constexpr std::uint64_t kRunPages = 16;
// A buffer need not be a multiple of huge pages larger than this.
constexpr Bytes kUsualHugePage = 2_MiB;

constexpr const char* kSmaps = "/proc/self/smaps";

// Bytes of `memory` between two addresses.
double overlap(std::span<const std::byte> memory, std::uintptr_t low, std::uintptr_t high) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t from = std::max(low, begin);
  const std::uintptr_t to = std::min(high, begin + memory.size());
  return from < to ? static_cast<double>(to - from) : 0;
}

}  // namespace

Bytes whole_huge_pages(Bytes bytes) {
  const Bytes page = huge_page();
  return page > kUsualHugePage ? bytes : page * ((bytes.value + page.value - 1) / page.value);
}

Bytes fitting(const Node& node, Bytes wanted) {
  constexpr std::uint64_t kPart = 16;
  if (!node.capacity || *node.capacity / kPart >= wanted) return wanted;
  const Bytes most = *node.capacity / kPart;
  const Bytes unit = most < 2_MiB ? 64_KiB : 2_MiB;
  return std::max(unit * (most / unit), unit);
}

std::string_view page_word(PageSize pages) { return pages == PageSize::base ? "base" : "huge"; }

Result<std::span<std::byte>> BufferPool::get(const MemoryKey& key, std::size_t index, Bytes bytes) {
  PooledBuffer& found = all_[{key, index}];
  if (found.buffer == nullptr || found.buffer->size() < bytes) {
    found = {};
    std::vector<NodeId> nodes{key.node};
    nodes.insert(nodes.end(), key.others.begin(), key.others.end());
    Placement placement = Placement::interleave(nodes);
    placement.pages = key.pages;
    placement.reason = "an experiment";
    const bool huge = key.pages == PageSize::transparent;
    auto made = allocate_for_cpus(machine_, huge ? whole_huge_pages(bytes) : bytes, placement);
    if (!made) {
      all_.erase({key, index});
      return Unexpected(std::move(made).error());
    }
    found.buffer = *std::move(made);
    // A child would share its pages, and each first store afterwards would copy one.
    const std::span<std::byte> all = found.buffer->bytes();
    ::madvise(all.data(), all.size(), MADV_DONTFORK);
  }
  found.in_use = true;
  return found.buffer->bytes().first(bytes.value);
}

Status BufferPool::check_residency() const {
  for (const auto& [key, found] : all_) {
    const std::span<const std::byte> all = found.buffer->bytes();
    const std::uint64_t page = base_page().value;
    const std::uint64_t run = std::min<std::uint64_t>(kRunPages * page, all.size());
    for (std::uint64_t i = 0; i < kRuns; ++i) {
      const std::uint64_t at = (all.size() - run) / kRuns * i / page * page;
      HEADRACE_TRY(const Residency residency, where(all.subspan(at, run)));
      for (const auto& [node, pages] : residency.pages) {
        if (node == key.first.node || std::ranges::count(key.first.others, node) > 0) continue;
        return fail(ErrorCode::io,
                    "memory of node {} has pages on node {}; is numa_balancing on, or the node "
                    "full or going offline?",
                    raw(key.first.node), raw(node));
      }
      if (residency.absent > 0) {
        return fail(ErrorCode::io, "memory of node {} was swapped out; free some memory",
                    raw(key.first.node));
      }
    }
  }
  return {};
}

std::optional<double> BufferPool::huge_part_in_use() const {
  Memories used;
  for (const auto& [key, found] : all_) {
    if (key.first.pages == PageSize::base || !found.in_use) continue;
    used.push_back(found.buffer->bytes());
  }
  if (used.empty()) return std::nullopt;
  std::ifstream smaps(kSmaps);
  return std::ranges::min(huge_parts(used, smaps));
}

void BufferPool::forget_uses() {
  for (auto& [key, found] : all_) found.in_use = false;
}

double BufferPool::huge_part(std::span<const std::byte> memory) {
  return huge_part(Memories{memory});
}

double BufferPool::huge_part(const Memories& memories) {
  std::ifstream smaps(kSmaps);
  return huge_part(memories, smaps);
}

double BufferPool::huge_part(const Memories& memories, std::istream& smaps) {
  const std::vector<double> parts = huge_parts(memories, smaps);
  double huge = 0;
  double all = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto bytes = static_cast<double>(memories[i].size());
    huge += parts[i] * bytes;
    all += bytes;
  }
  return huge / all;
}

std::vector<double> BufferPool::huge_parts(const Memories& memories, std::istream& smaps) {
  std::vector<double> huge(memories.size());
  std::uintptr_t low = 0;
  std::uintptr_t high = 0;
  for (std::string line; std::getline(smaps, line);) {
    // "AnonHugePages" also begins with a hexadecimal digit.
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      low = begin;
      high = end;
      continue;
    }
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &kib) != 1 &&
        std::sscanf(line.c_str(), "Private_Hugetlb: %" SCNu64, &kib) != 1) {
      continue;
    }
    if (kib == 0) continue;
    // Adjacent mappings may be one area in the kernel: its huge pages count in proportion.
    const double of_each = static_cast<double>(kib << 10) / static_cast<double>(high - low);
    for (std::size_t i = 0; i < memories.size(); ++i) {
      huge[i] += of_each * overlap(memories[i], low, high);
    }
  }
  for (std::size_t i = 0; i < memories.size(); ++i) {
    huge[i] = std::min(1.0, huge[i] / static_cast<double>(memories[i].size()));
  }
  return huge;
}

}  // namespace headrace::instruments
