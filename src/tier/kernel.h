// SPDX-License-Identifier: Apache-2.0
// What sources of hotness and tiers ask of the kernel. Tests take its place to refuse. Thread-safe.
//
// PAGEMAP_SCAN and the newer features of userfaultfd are declared here, for the headers of Debian
// 12 do not know them: linux/fs.h and linux/userfaultfd.h of Linux 6.7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// What `work` returns, or exhausted where it runs out of memory.
auto no_throw(const auto& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// struct page_region.
struct PageRegion {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t categories;
};

// struct pm_scan_arg.
struct PageScan {
  std::uint64_t size = sizeof(PageScan);
  std::uint64_t flags = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t walk_end = 0;  // the kernel says how far it came
  std::uint64_t regions = 0;   // address of an array of PageRegion
  std::uint64_t region_count = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t category_inverted = 0;
  std::uint64_t category_mask = 0;
  std::uint64_t category_anyof_mask = 0;
  std::uint64_t return_mask = 0;
};
static_assert(sizeof(PageScan) == 96 && sizeof(PageRegion) == 24);

inline constexpr std::uint64_t kPageIsWritten = 1 << 1;
inline constexpr std::uint64_t kPageIsPresent = 1 << 3;
inline constexpr std::uint64_t kProtectMatching = 1 << 0;  // PM_SCAN_WP_MATCHING
inline constexpr std::uint64_t kCheckProtected = 1 << 1;   // PM_SCAN_CHECK_WPASYNC

inline constexpr std::uint64_t kWpUnpopulated = 1 << 13;  // UFFD_FEATURE_WP_UNPOPULATED, Linux 6.4
inline constexpr std::uint64_t kWpAsync = 1 << 15;        // UFFD_FEATURE_WP_ASYNC, Linux 6.7

// Calls give what the kernel gives, or -errno.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int open(const char* path, int flags);
  virtual int userfaultfd(int flags);
  virtual int ioctl(int descriptor, unsigned long request, void* argument);
  virtual int madvise(std::uintptr_t begin, std::size_t bytes, int advice);
  virtual std::int64_t write(int descriptor, const void* bytes, std::size_t count);
  virtual std::int64_t pread(int descriptor, void* bytes, std::size_t count, std::int64_t at);
  // Mappings that a process may have (vm.max_map_count).
  virtual std::uint64_t max_mappings();
  // A transparent huge page: 2 MiB, on arm64 with pages of 64 KiB 512 MiB.
  virtual Bytes huge_page();
  // Moves pages of this process, each to its node, or without `nodes` asks where they are; `status`
  // has the node of each, or -errno.
  virtual std::int64_t move_pages(std::span<void* const> pages, const int* nodes, int* status);
  // What is free on each node that this process may use.
  virtual std::map<NodeId, Bytes> free_memory();
  // Those that the policy of the calling thread binds its memory to; nothing if it binds to none.
  virtual std::optional<std::vector<NodeId>> bound_nodes();
  // How far nodes are from each other, as the firmware says (SLIT); what is unknown is left out.
  virtual std::map<std::pair<NodeId, NodeId>, unsigned> distances();
};

Kernel& system_kernel();

// A descriptor that the process that opened it closes, and a child as it begins. Thread-compatible.
class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  explicit OwnDescriptor(int descriptor);
  OwnDescriptor(OwnDescriptor&& other) noexcept;
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept;
  ~OwnDescriptor();
  int get() const { return descriptor_; }
  // Leaves it as it is: in a child it is closed already, and its number may be another's.
  void forget() { descriptor_ = -1; }

 private:
  int descriptor_ = -1;
};

// A file of /proc/self, for reading, or for writing with O_WRONLY. unsupported, denied, exhausted:
// with the reason.
Result<OwnDescriptor> open_proc(Kernel& kernel, const char* path, int flags);

// /proc/self/pagemap. unsupported: a kernel without PAGEMAP_SCAN.
Result<OwnDescriptor> open_pagemap(Kernel& kernel);

// Pages [begin, end) that have all `categories`, as ranges, ascending. With kProtectMatching among
// the `flags` they are write-protected in the same step; with kCheckProtected it is denied where a
// mapping is not registered for write protection.
Status scan_pages(Kernel& kernel, int pagemap, std::uintptr_t begin, std::uintptr_t end,
                  std::uint64_t categories, std::uint64_t flags,
                  const std::function<void(const PageRegion&)>& each);

// A userfaultfd for this process' own write protection, with kWpAsync. unsupported, denied: with
// what is missing.
Result<OwnDescriptor> open_write_protection(Kernel& kernel);

// Registers and unregisters memory there; the errors of the kernel.
Status register_protection(Kernel& kernel, int descriptor, std::uintptr_t begin,
                           std::uintptr_t end);
// False: the kernel refuses, there being something else by now.
bool unregister_protection(Kernel& kernel, int descriptor, std::uintptr_t begin,
                           std::uintptr_t end);
// Write-protects all pages of registered memory, those never touched too.
Status protect_pages(Kernel& kernel, int descriptor, std::uintptr_t begin, std::uintptr_t end);

}  // namespace headrace
