// SPDX-License-Identifier: Apache-2.0
// Memory allocated by a placement, and the location of memory as the kernel reports it.
//
//     auto buffer = headrace::allocate(machine, size, headrace::Placement::on(kind));
//     if (!buffer) return headrace::Unexpected(buffer.error());
//     std::span<std::byte> bytes = (*buffer)->bytes();
//
// A buffer is mapped with mmap and bound with mbind, without an allocator in between. It is meant
// for large pieces, not as a replacement for malloc (heap.h). Thread-compatible; allocate and where
// are Thread-safe.
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

// Page-aligned, zeroed memory, released by the destructor.
class Buffer final : public Object {
 public:
  ~Buffer();

  // Empty for a GPU's own memory. Copies reach that (mover.h), and GPU code at device_address().
  std::span<std::byte> bytes() const { return {memory(), memory() == nullptr ? 0 : size().value}; }
  const Placement& placement() const { return placement_; }
  // The actual page size. fallback() says why it is not the requested one; empty if it is.
  PageSize page_size() const { return page_size_; }
  const std::string& fallback() const { return fallback_; }
  // True if the memory is a file on storage.
  bool in_file() const { return in_file_; }
  // True if all of it is registered with the GPU driver (Placement::pin): copy engines reach it.
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
  // Released with the buffer.
  std::shared_ptr<const PinnedMemory> pinned_;
  std::shared_ptr<const DeviceMemory> device_;
};

// Allocates `bytes` by `placement`, at a multiple of its page size and of `align`, a power of two.
// The kernel rounds up to whole pages; size() does not. A kind or property is resolved for
// Placement::near, else for the calling CPU.
//
// Spilling: a placement that spills in a stated order is divided by the memory free now. Its own
// nodes are filled first, in turns, without full ones. The next part goes to the first spill node,
// as far as it fits, and so on. Exception: pages of a hugetlb pool spill as the kernel decides.
//
// Weights count pages. Huge pages are always whole. Base pages are counted in runs of 2, 4, ...
// pages if the buffer would otherwise need more than 512 changes of node. The kernel's weighted
// interleaving is used if its table has exactly these weights (docs/design/placement-on-linux.md).
// Pages of a hugetlb pool are always touched at once: a page missing later would be a SIGBUS.
//
// Errors:
// - invalid: no bytes; an `align` that is not a power of two; and as resolve()
// - absent: no such node in the machine or on this host
// - denied: forbidden by the cpuset, a policy, or the limit of locked memory
// - exhausted: too little free memory on the nodes; the message lists the free memory per node. A
//   strict request never spills. It is checked against free memory before a page is touched, so the
//   OOM killer does not run.
//
// On storage, memory is a nameless file, mapped through the page cache; node() is the cache's node.
// The kernel writes pages to the device when memory is short. The file is deleted with the buffer.
// A forked child shares it instead of having a copy. Its space is reserved at once, as far as the
// file system can promise it (copy-on-write ones such as btrfs and ZFS cannot). Its pages are not
// touched. A later device error is a SIGBUS, as for any mapped file.
//
// On a GPU without a NUMA node, memory is the GPU's own, zeroed; memory() is nullptr. Page size,
// touch and lock have no effect. Not usable in a child made by fork(). Errors:
// - absent: no GPU driver, or the driver does not show this GPU
// - exhausted: too little free memory
// - timed_out: the GPU is too busy to zero it
// - unsupported: `pin`; an `align` above the driver's own alignment (256 bytes)
//
// With Placement::pin, memory is registered with the GPU driver, in parts of at most 64 GiB: larger
// ones fail in drivers of 580 and later. Each page of a strict placement is then verified to be on
// its nodes. If a part is refused, everything is undone: exhausted or denied. The memory is
// never returned unpinned.
Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                         const Placement& placement, Bytes align = {1});

// The same for memory that CPUs read and write. Errors: unsupported: a GPU without a NUMA node.
Result<std::unique_ptr<Buffer>> allocate_for_cpus(const Machine& machine, Bytes bytes,
                                                  const Placement& placement, Bytes align = {1});

// Moves a buffer to another placement. Its addresses stay; other threads may read and write it
// meanwhile. Untouched pages are allocated by the new placement later. Pages keep their size and
// are neither touched nor locked again. The contents are the same in any case; after an error
// `where` returns their location.
// Errors: as allocate(), with too little free memory before a page moves. exhausted: pages of a
// strict placement did not move (pinned, or the node became full). unsupported: too few huge pages
// for the weights; memory that is a file, a GPU's own, or pinned.
Status relocate(const Machine& machine, Buffer& buffer, const Placement& placement);

// Pages per node, as the kernel reports them (move_pages without a target).
struct Residency {
  // Present base pages per node, of sysconf(_SC_PAGESIZE) bytes (4 KiB on x86).
  std::map<NodeId, std::uint64_t> pages;
  std::uint64_t absent = 0;  // base pages never touched, or swapped out
  std::uint64_t total() const;
};

// The current location of the pages of a range, which is widened to whole pages.
Result<Residency> where(std::span<const std::byte> range);

}  // namespace HEADRACE_API headrace
