// Memory allocated by a placement, and the truth about where memory is.
//
// Real NUMA policy on real pages: mmap and mbind, no allocator in between; meant for large pieces,
// not as a replacement for malloc. Thread-compatible; allocate and where are Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "headrace/export.h"
#include "headrace/object.h"
#include "headrace/placement.h"

namespace HEADRACE_API headrace {

// Page-aligned memory of its own, released when it goes. Zeroed.
class Buffer final : public Object {
 public:
  ~Buffer();

  std::span<std::byte> bytes() const { return {memory(), size().value}; }
  const Placement& placement() const { return placement_; }
  // The page size it really has, and in words why not the one asked for; empty if it is.
  PageSize page_size() const { return page_size_; }
  const std::string& fallback() const { return fallback_; }

 private:
  friend class LinuxMemory;
  Buffer(std::byte* memory, Bytes size, Bytes mapped, Placement placement, PageSize page_size,
         std::string fallback);

  const Bytes mapped_;
  const Placement placement_;
  const PageSize page_size_;
  const std::string fallback_;
};

// Allocates `bytes` (rounded up to whole pages in the kernel, not in size()) by `placement`; a kind
// is resolved for the calling CPU.
// invalid: no bytes, no node, a node named twice or with weight 0. absent: no such node, in the
// machine or on this host. denied: the cpuset or a policy forbids it. exhausted: the nodes have not
// that much free, with what is free where; a strict request never spills and is checked against the
// free memory of its nodes before a page is touched, so that the OOM killer stays away.
// Weights count pages; of base pages in buffers that would need more than 512 changes of node they
// count runs of 2, 4, ... pages, and of huge pages always whole ones
// (docs/design/placement-on-linux.md). Pages from a hugetlb pool are touched at once, whatever the
// placement says: one that is missing later would be a SIGBUS.
Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                         const Placement& placement);

// Pages per node, as the kernel says (move_pages with no target).
struct Residency {
  std::map<NodeId, std::uint64_t> pages;  // base pages (4 KiB) present on each node
  std::uint64_t absent = 0;               // base pages never touched, or swapped out
  std::uint64_t total() const;
};

// Where the pages of a range are now. The range is widened to whole pages.
Result<Residency> where(std::span<const std::byte> range);

}  // namespace HEADRACE_API headrace
