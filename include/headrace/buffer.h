// SPDX-License-Identifier: Apache-2.0
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

class PinnedMemory;
class DeviceMemory;

// Page-aligned memory of its own, released when it goes. Zeroed.
class Buffer final : public Object {
 public:
  ~Buffer();

  // Empty in the memory of a GPU that is no NUMA node: that is reached by copies (mover.h), and by
  // code of the GPU at device_address().
  std::span<std::byte> bytes() const { return {memory(), memory() == nullptr ? 0 : size().value}; }
  const Placement& placement() const { return placement_; }
  // The page size it really has, and in words why not the one asked for; empty if it is.
  PageSize page_size() const { return page_size_; }
  const std::string& fallback() const { return fallback_; }
  // On storage.
  bool in_file() const { return in_file_; }
  // Registered with the driver of GPUs, all of it (Placement::pin): their copy engines reach it.
  bool pinned() const { return pinned_ != nullptr; }

 private:
  friend class LinuxMemory;
  friend Status relocate(const Machine& machine, Buffer& buffer, const Placement& placement);
  Buffer(Bytes size, NodeId node, std::byte* memory, Bytes mapped, Placement placement,
         PageSize page_size, std::string fallback, bool in_file = false,
         std::shared_ptr<const PinnedMemory> pinned = {});
  Buffer(NodeId node, std::shared_ptr<const DeviceMemory> device, Placement placement);

  const Bytes mapped_;
  Placement placement_;
  const PageSize page_size_;
  const std::string fallback_;
  const bool in_file_;
  // What they own ends with the buffer.
  std::shared_ptr<const PinnedMemory> pinned_;
  std::shared_ptr<const DeviceMemory> device_;
};

// Allocates `bytes` (rounded up to whole pages in the kernel, not in size()) by `placement`; a kind
// or property is resolved for Placement::near, else for the calling CPU.
//
// A placement that spills in a stated order is cut by what is free now: what its nodes have room
// for, in turns, from the front, those that are full left out; then as much as fits on the first
// node it spills to, and so on. Not so with pages of a hugetlb pool: the kernel says where those
// spill to. Its weighted interleaving deals the pages where its table has these very weights.
//
// Weights count pages; of base pages in buffers that would need more than 512 changes of node they
// count runs of 2, 4, ... pages, and of huge pages always whole ones
// (docs/design/placement-on-linux.md). Pages from a hugetlb pool are touched at once, whatever the
// placement says: one that is missing later would be a SIGBUS.
//
// invalid: no bytes, an `align` that is none, and as resolve(). absent: no such node, in the
// machine or on this host. denied: the cpuset or a policy forbids it, or the limit of locked
// memory. exhausted: the nodes have not that much free, with what is free where; a strict request
// never spills and is checked against the free memory of its nodes before a page is touched, so
// that the OOM killer stays away.
//
// It begins at a multiple of its pages and of `align`, a power of two.
//
// On storage it is memory in a file: loads and stores reach it through the page cache, whose node
// is node(), and the kernel writes it to the device when memory is short. The file has no name and
// goes with the buffer; a forked child shares it instead of having a copy. Room for it is taken on
// the device at once, as far as its file system can promise it (copy-on-write ones such as btrfs
// and ZFS cannot); its pages are not touched. An error of the device later is a SIGBUS, as of any
// mapped file.
//
// On a GPU that is no NUMA node it is memory of that GPU, zeroed: memory() is nullptr, and pages,
// touch and lock mean nothing. absent: no driver of it here, or it does not show that GPU.
// exhausted: not that much is free. timed_out: too busy to zero it. unsupported: `pin`; an `align`
// that the driver's memory does not have (its own is 256). Not for a child made by fork().
//
// With Placement::pin it is registered with the driver, in parts of at most 64 GiB, since larger
// ones fail in drivers of 580 and later, and verified: each page of a strict placement is on its
// nodes. If a part is refused all is undone: exhausted or denied; it is never given unpinned.
Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                         const Placement& placement, Bytes align = {1});

// The same for what CPUs are to read and write. unsupported: on a GPU that is no NUMA node.
Result<std::unique_ptr<Buffer>> allocate_for_cpus(const Machine& machine, Bytes bytes,
                                                  const Placement& placement, Bytes align = {1});

// Moves a buffer to another placement. Its addresses stay, and other threads may read and write it
// meanwhile; pages never touched come there later. Its pages keep their size and are not touched or
// locked anew. Errors as allocate(): before a page moved when there is too little room. Besides,
// exhausted: pages of a strict placement stayed where they were (pinned, or the node filled up).
// unsupported: huge pages too few to be shared by weight, memory in a file or of a GPU, or pinned.
// The bytes are the same in any case, and after an error `where` tells where they are.
Status relocate(const Machine& machine, Buffer& buffer, const Placement& placement);

// Pages per node, as the kernel says (move_pages with no target).
struct Residency {
  // Base pages, of sysconf(_SC_PAGESIZE) bytes (4 KiB on x86), present on each node.
  std::map<NodeId, std::uint64_t> pages;
  std::uint64_t absent = 0;  // base pages never touched, or swapped out
  std::uint64_t total() const;
};

// Where the pages of a range are now. The range is widened to whole pages.
Result<Residency> where(std::span<const std::byte> range);

}  // namespace HEADRACE_API headrace
