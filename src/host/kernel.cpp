// SPDX-License-Identifier: Apache-2.0
#include "host/kernel.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/fail.h"
#include "headrace/process.h"
#include "host/mempolicy.h"
#include "host/nodes.h"
#include "host/page_sizes.h"

namespace headrace {
namespace {

// Linux's default, used if the file cannot be read.
constexpr unsigned kUsualMappings = 65530;
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PageScan);  // PAGEMAP_SCAN
constexpr int kUserModeOnly = 1;                                  // UFFD_USER_MODE_ONLY, Linux 5.11
constexpr std::uint64_t kWpShared = 1 << 12;  // UFFD_FEATURE_WP_HUGETLBFS_SHMEM, Linux 5.19

int or_error(int result) { return result < 0 ? -errno : result; }

}  // namespace

int Kernel::open(const char* path, int flags) { return or_error(::open(path, flags | O_CLOEXEC)); }
int Kernel::userfaultfd(int flags) {
  return or_error(static_cast<int>(::syscall(SYS_userfaultfd, flags)));
}
int Kernel::ioctl(int descriptor, unsigned long request, void* argument) {
  return or_error(::ioctl(descriptor, request, argument));
}
int Kernel::madvise(std::uintptr_t begin, std::size_t bytes, int advice) {
  return or_error(::madvise(reinterpret_cast<void*>(begin), bytes, advice));
}
std::int64_t Kernel::write(int descriptor, const void* bytes, std::size_t count) {
  const ssize_t written = ::write(descriptor, bytes, count);
  return written < 0 ? -errno : written;
}
std::int64_t Kernel::pread(int descriptor, void* bytes, std::size_t count, std::int64_t at) {
  const ssize_t got = ::pread(descriptor, bytes, count, at);
  return got < 0 ? -errno : got;
}
std::uint64_t Kernel::max_mappings() {
  return number_after(HostFiles().text("proc/sys/vm/max_map_count"), "").value_or(kUsualMappings);
}
Bytes Kernel::huge_page() { return headrace::huge_page(); }
std::int64_t Kernel::move_pages(std::span<void* const> pages, const int* nodes, int* status) {
  return headrace::move_pages(pages, nodes, status);
}
std::map<NodeId, Bytes> Kernel::free_memory() { return headrace::free_memory().nodes; }
std::optional<std::vector<NodeId>> Kernel::bound_nodes() { return headrace::bound_nodes(); }
std::map<std::pair<NodeId, NodeId>, unsigned> Kernel::distances() { return node_distances(); }

Kernel& system_kernel() {
  static Kernel& kernel = *new Kernel;
  return kernel;
}

Result<OwnDescriptor> open_proc(Kernel& kernel, const char* path, int flags) {
  const int descriptor = kernel.open(path, flags);
  if (descriptor >= 0) return OwnDescriptor(descriptor);
  switch (descriptor) {
    case -ENOENT:
      return fail(ErrorCode::unsupported,
                  "there is no {}: /proc is not mounted, or the kernel was built without "
                  "CONFIG_PROC_PAGE_MONITOR, or a sandbox stands in for it",
                  path);
    case -EROFS: return fail(ErrorCode::denied, "cannot open {}: /proc is read-only here", path);
    case -EACCES:
    case -EPERM:
      return fail(ErrorCode::denied,
                  "may not open {}: the process is not dumpable (it has changed its user, or its "
                  "program may not be read), or a sandbox forbids it",
                  path);
    default: return fail_errno(-descriptor, std::string("cannot open ") + path);
  }
}

Result<OwnDescriptor> open_pagemap(Kernel& kernel) {
  HEADRACE_TRY(OwnDescriptor pagemap, open_proc(kernel, "/proc/self/pagemap", O_RDONLY));
  PageScan nothing;
  nothing.category_mask = nothing.return_mask = kPageIsPresent;
  const int result = kernel.ioctl(pagemap.get(), kPagemapScan, &nothing);
  if (result == -ENOTTY) {
    return fail(ErrorCode::unsupported,
                "this kernel cannot list pages by their state (PAGEMAP_SCAN); it takes Linux 6.7");
  }
  if (result < 0) return fail_errno(-result, "cannot list pages by their state (PAGEMAP_SCAN)");
  return pagemap;
}

Status scan_pages(Kernel& kernel, int pagemap, std::uintptr_t begin, std::uintptr_t end,
                  std::uint64_t categories, std::uint64_t flags,
                  const std::function<void(const PageRegion&)>& each) {
  std::array<PageRegion, 1024> regions;
  while (begin < end) {
    PageScan scan;
    scan.flags = flags;
    scan.begin = begin;
    scan.end = end;
    scan.regions = reinterpret_cast<std::uintptr_t>(regions.data());
    scan.region_count = regions.size();
    scan.category_mask = scan.return_mask = categories;
    const int count = kernel.ioctl(pagemap, kPagemapScan, &scan);
    if (count == -EINTR) continue;
    if (count < 0) return fail_errno(-count, "cannot list pages by their state (PAGEMAP_SCAN)");
    for (int i = 0; i < count; ++i) each(regions[static_cast<std::size_t>(i)]);
    if (scan.walk_end <= begin) return fail(ErrorCode::io, "PAGEMAP_SCAN does not advance");
    begin = scan.walk_end;
  }
  return {};
}

Result<OwnDescriptor> open_write_protection(Kernel& kernel) {
  const int descriptor = kernel.userfaultfd(O_CLOEXEC | O_NONBLOCK | kUserModeOnly);
  if (descriptor == -ENOSYS) {
    return fail(ErrorCode::unsupported,
                "there is no userfaultfd here: the kernel was built without CONFIG_USERFAULTFD, or "
                "a sandbox stands in for it");
  }
  if (descriptor == -EINVAL) {
    return fail(ErrorCode::unsupported,
                "userfaultfd of this kernel does not know UFFD_USER_MODE_ONLY; it takes Linux 6.7");
  }
  if (descriptor == -EPERM || descriptor == -EACCES) {
    return fail(ErrorCode::denied,
                "userfaultfd is refused; in a container its seccomp profile must allow it");
  }
  if (descriptor < 0) return fail_errno(-descriptor, "cannot open a userfaultfd");
  OwnDescriptor faults(descriptor);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kWpAsync | kWpUnpopulated | kWpShared;
  const int result = kernel.ioctl(descriptor, UFFDIO_API, &api);
  if (result == -EINVAL) {
    return fail(ErrorCode::unsupported,
                "this kernel has no write protection without a handler (UFFD_FEATURE_WP_ASYNC); it "
                "takes Linux 6.7 with CONFIG_PTE_MARKER_UFFD_WP");
  }
  if (result < 0) return fail_errno(-result, "cannot set userfaultfd up (UFFDIO_API)");
  return faults;
}

Status register_protection(Kernel& kernel, int descriptor, std::uintptr_t begin,
                           std::uintptr_t end) {
  uffdio_register request{};
  request.range = {begin, end - begin};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  const int result = kernel.ioctl(descriptor, UFFDIO_REGISTER, &request);
  if (result == -EBUSY) {
    return fail(ErrorCode::invalid, "the memory is registered with another userfaultfd already");
  }
  if (result == -EINVAL) {
    return fail(ErrorCode::unsupported,
                "the kernel cannot write-protect memory of this kind (a file of a disk, a device); "
                "give anonymous or shared memory");
  }
  if (result < 0) return fail_errno(-result, "cannot register memory (UFFDIO_REGISTER)");
  return {};
}

bool unregister_protection(Kernel& kernel, int descriptor, std::uintptr_t begin,
                           std::uintptr_t end) {
  uffdio_range range{begin, end - begin};
  return kernel.ioctl(descriptor, UFFDIO_UNREGISTER, &range) == 0;
}

Status protect_pages(Kernel& kernel, int descriptor, std::uintptr_t begin, std::uintptr_t end) {
  uffdio_writeprotect request{};
  request.range = {begin, end - begin};
  request.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  int result = -EAGAIN;
  // EAGAIN: the mappings are changing right now.
  for (int tries = 0; tries < 100 && result == -EAGAIN; ++tries) {
    result = kernel.ioctl(descriptor, UFFDIO_WRITEPROTECT, &request);
  }
  if (result < 0) return fail_errno(-result, "cannot write-protect (UFFDIO_WRITEPROTECT)");
  return {};
}

}  // namespace headrace
