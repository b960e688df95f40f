// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/region.h"

#include <linux/mman.h>  // MADV_COLLAPSE, in the C library since 2.37
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "measure/instruments/buffer_pool.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_migrate {

using namespace instruments;

Part part_of(std::uint64_t pages, std::size_t i, std::size_t parts) {
  const std::uint64_t first = pages * i / parts;
  return {first, pages * (i + 1) / parts - first};
}

Result<std::uint64_t> pages_not_on(NodeId node, std::span<const std::byte> bytes) {
  HEADRACE_TRY(const Residency residency, where(bytes));
  const auto there = residency.pages.find(node);
  return residency.total() - (there == residency.pages.end() ? 0 : there->second);
}

Result<std::unique_ptr<Region>> Region::make(std::optional<NodeId> node, Bytes bytes, Bytes page) {
  auto memory = MappedMemory::make(bytes, page, base_page(), PROT_READ | PROT_WRITE);
  if (!memory) return fail_errno(memory.error(), "no memory for the pages to move");
  std::unique_ptr<Region> region(new Region(*std::move(memory), page));
  // Refused by kernels without transparent huge pages; the later check then finds none.
  madvise(region->bytes().data(), bytes.value,
          page == base_page() ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (node) HEADRACE_TRY_STATUS(bind_pages(region->bytes(), *node));
  return region;
}

// If the kernel gave base pages for lack of free huge ones, asks it to make some. That is new in
// Linux 6.1: older kernels return EINVAL, and the pages stay small.
bool Region::make_huge() {
  if (!is_all_huge(BufferPool::huge_part(bytes()))) {
    madvise(bytes().data(), bytes().size(), MADV_COLLAPSE);
  }
  return is_all_huge(BufferPool::huge_part(bytes()));
}

Status Region::fill(const CpuSet& cpus, std::optional<NodeId> node) {
  HEADRACE_TRY_STATUS(run_pinned(cpus, [&](std::size_t i) {
    const std::span<std::byte> own = bytes(part_of(pages(), i, cpus.size()));
    if (!own.empty()) std::memset(own.data(), 1, own.size());
  }));
  if (page_ != base_page() && !make_huge()) {
    return fail(ErrorCode::exhausted, "the kernel gave no huge pages; see transparent_hugepage");
  }
  if (!node) return {};
  HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(*node, bytes()));
  if (elsewhere == 0) return {};
  return fail(ErrorCode::exhausted, "{} pages could not be put on node {}; free memory there",
              elsewhere, raw(*node));
}

Status Region::move(Part part, NodeId node) {
  std::vector<void*> addresses;
  addresses.reserve(part.count);
  std::byte* const begin = bytes(part).data();
  for (std::uint64_t i = 0; i < part.count; ++i) addresses.push_back(begin + i * page_.value);
  HEADRACE_TRY_STATUS(move_pages_to(addresses, node));
  return {};
}

}  // namespace headrace::experiment_migrate
