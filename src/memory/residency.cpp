// SPDX-License-Identifier: Apache-2.0
// Residency: the nodes of pages, as the kernel reports them.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "core/fail.h"
#include "core/own_files.h"
#include "headrace/buffer.h"
#include "host/host_memory.h"
#include "host/mempolicy.h"

namespace headrace {
namespace {

// Pages per call: enough to make the call cheap, few enough for the cache.
constexpr std::size_t kBatch = 8192;

struct PageRange {
  std::uintptr_t first;  // address
  std::size_t count;
  std::size_t size;  // of a page
};

PageRange pages_of(std::span<const std::byte> range) {
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  const auto first = begin / size * size;
  return {first, (begin + range.size() - first + size - 1) / size, size};
}

void* address(const PageRange& range, std::size_t page) {
  return reinterpret_cast<void*>(range.first + page * range.size);
}

// Whether all pages [from, from + count) of the range are mapped.
bool is_mapped(const PageRange& range, std::size_t from, std::size_t count) {
  std::vector<unsigned char> in_core(count);
  return ::mincore(address(range, from), count * range.size, in_core.data()) == 0;
}

Unexpected not_mapped() {
  return fail(ErrorCode::invalid, "a part of the range is not mapped; give memory that is there");
}

Result<Residency> ask_move_pages(const PageRange& range) {
  Residency residency;
  std::vector<void*> addresses(std::min(kBatch, range.count));
  std::vector<int> nodes(addresses.size());
  for (std::size_t from = 0; from < range.count; from += kBatch) {
    const std::size_t count = std::min(kBatch, range.count - from);
    for (std::size_t i = 0; i < count; ++i) addresses[i] = address(range, from + i);
    const std::int64_t asked = move_pages({addresses.data(), count}, nullptr, nodes.data());
    if (asked < 0) {
      return fail_errno(static_cast<int>(-asked), "cannot ask where pages are (move_pages)");
    }
    bool unclear = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (nodes[i] >= 0) {
        ++residency.pages[NodeId{static_cast<std::uint32_t>(nodes[i])}];
      } else {
        ++residency.absent;
        unclear = unclear || nodes[i] == -EFAULT;
      }
    }
    // The shared zero page, which untouched memory has after a read, or a hole.
    if (unclear && !is_mapped(range, from, count)) return not_mapped();
  }
  return residency;
}

// On a host with one node, without move_pages: finds only which pages are present.
Result<Residency> ask_pagemap(const PageRange& range, NodeId node) {
  constexpr std::uint64_t kPresent = std::uint64_t{1}
                                     << 63;  // Documentation/admin-guide/mm/pagemap
  Residency residency;
  const OwnDescriptor file(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return fail_errno(errno, "/proc/self/pagemap");
  std::vector<std::uint64_t> entries(std::min(kBatch, range.count));
  for (std::size_t from = 0; from < range.count; from += kBatch) {
    const std::size_t count = std::min(kBatch, range.count - from);
    const auto at = (range.first / range.size + from) * sizeof(std::uint64_t);
    const auto wanted = static_cast<ssize_t>(count * sizeof(std::uint64_t));
    if (::pread(file.get(), entries.data(), static_cast<std::size_t>(wanted),
                static_cast<off_t>(at)) != wanted ||
        !is_mapped(range, from, count)) {
      return not_mapped();
    }
    const auto present = static_cast<std::uint64_t>(
        std::count_if(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count),
                      [](std::uint64_t entry) { return (entry & kPresent) != 0; }));
    if (present > 0) residency.pages[node] += present;
    residency.absent += count - present;
  }
  return residency;
}

}  // namespace

std::uint64_t Residency::total() const {
  std::uint64_t sum = absent;
  for (const auto& [node, count] : pages) sum += count;
  return sum;
}

Result<Residency> where(std::span<const std::byte> range) {
  if (range.empty()) return Residency{};
  const PageRange pages = pages_of(range);
  auto residency = ask_move_pages(pages);
  if (residency || (residency.error().code != ErrorCode::denied &&
                    residency.error().code != ErrorCode::unsupported)) {
    return residency;
  }
  // Containers often forbid the call (seccomp without CAP_SYS_NICE).
  const HostMemory host = read_host_memory();
  if (host.nodes.size() == 1) return ask_pagemap(pages, host.nodes.front().id);
  return fail(ErrorCode::denied,
              "{}; give the container CAP_SYS_NICE or a seccomp profile that allows move_pages",
              residency.error().message);
}

}  // namespace headrace
