// SPDX-License-Identifier: Apache-2.0
// System calls that hotness sources and tiers use; tests replace them to simulate refusals.
// Thread-safe.
//
// PAGEMAP_SCAN and the newer features of userfaultfd are declared here, because the headers of
// Debian 12 lack them: linux/fs.h and linux/userfaultfd.h of Linux 6.7.
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
#include "core/own_files.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// Returns the result of `work`. Errors: exhausted: `work` ran out of memory.
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
  std::uint64_t walk_end = 0;  // output: how far the kernel came
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

// Each call returns the kernel's result, or -errno.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int open(const char* path, int flags);
  virtual int userfaultfd(int flags);
  virtual int ioctl(int descriptor, unsigned long request, void* argument);
  virtual int madvise(std::uintptr_t begin, std::size_t bytes, int advice);
  virtual std::int64_t write(int descriptor, const void* bytes, std::size_t count);
  virtual std::int64_t pread(int descriptor, void* bytes, std::size_t count, std::int64_t at);
  // Maximum mappings per process (vm.max_map_count).
  virtual std::uint64_t max_mappings();
  // Size of a transparent huge page: 2 MiB; 512 MiB on arm64 with pages of 64 KiB.
  virtual Bytes huge_page();
  // Moves each page of this process to its entry of `nodes`; without `nodes`, only asks where pages
  // are. `status` gets the node of each page, or -errno.
  virtual std::int64_t move_pages(std::span<void* const> pages, const int* nodes, int* status);
  // Free memory of each node that this process may use.
  virtual std::map<NodeId, Bytes> free_memory();
  // The nodes to which the calling thread's policy binds its memory; nullopt: not bound.
  virtual std::optional<std::vector<NodeId>> bound_nodes();
  // Distances between nodes as the firmware states them (SLIT); unknown pairs are left out.
  virtual std::map<std::pair<NodeId, NodeId>, unsigned> distances();
};

Kernel& system_kernel();

// Opens a file of /proc/self for reading, or with O_WRONLY for writing. Errors: unsupported,
// denied, exhausted: with the reason.
Result<OwnDescriptor> open_proc(Kernel& kernel, const char* path, int flags);

// Opens /proc/self/pagemap. Errors: unsupported: a kernel without PAGEMAP_SCAN.
Result<OwnDescriptor> open_pagemap(Kernel& kernel);

// Passes each range of pages in [begin, end) that have all `categories` to `each`, ascending.
// Flags: kProtectMatching also write-protects these pages in the same step; kCheckProtected fails
// with denied if a mapping is not registered for write protection.
Status scan_pages(Kernel& kernel, int pagemap, std::uintptr_t begin, std::uintptr_t end,
                  std::uint64_t categories, std::uint64_t flags,
                  const std::function<void(const PageRegion&)>& each);

// Opens a userfaultfd for this process's own write protection, with kWpAsync. Errors: unsupported,
// denied: the message names the missing feature or right.
Result<OwnDescriptor> open_write_protection(Kernel& kernel);

// Registers or unregisters memory there. Errors: those of the kernel.
Status register_protection(Kernel& kernel, int descriptor, std::uintptr_t begin,
                           std::uintptr_t end);
// False: the kernel refuses, because other memory is mapped there now.
bool unregister_protection(Kernel& kernel, int descriptor, std::uintptr_t begin,
                           std::uintptr_t end);
// Write-protects all pages of registered memory, including pages never touched.
Status protect_pages(Kernel& kernel, int descriptor, std::uintptr_t begin, std::uintptr_t end);

}  // namespace headrace
