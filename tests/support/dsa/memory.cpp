// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "core/fail.h"

namespace headrace::emulator {
namespace {

// Documentation/admin-guide/mm/pagemap.rst: bit 63 of a page's entry.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;

iovec range_of(std::uint64_t address, std::size_t size) {
  return {reinterpret_cast<void*>(address), size};
}

}  // namespace

Result<std::unique_ptr<ProcessMemory>> ProcessMemory::open(pid_t pid, bool absent_pages_fault) {
  // Reads nothing, but checks the right to read.
  const iovec none{};
  if (process_vm_readv(pid, &none, 1, &none, 1, 0) < 0) {
    return fail_errno(errno, fmt::format("cannot reach the memory of process {}", pid));
  }
  int pagemap = -1;
  if (absent_pages_fault) {
    pagemap = ::open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) {
      return fail_errno(errno, fmt::format("cannot open the page map of process {}", pid));
    }
  }
  return std::unique_ptr<ProcessMemory>(new ProcessMemory(pid, pagemap));
}

ProcessMemory::~ProcessMemory() {
  if (pagemap_ >= 0) ::close(pagemap_);
}

bool ProcessMemory::present(std::uint64_t address) const {
  if (pagemap_ < 0) return true;
  std::uint64_t entry = 0;
  const auto offset = static_cast<off_t>(address / kPage * sizeof(entry));
  return pread(pagemap_, &entry, sizeof(entry), offset) == sizeof(entry) && (entry & kPresent) != 0;
}

bool ProcessMemory::read(std::uint64_t address, std::span<std::byte> to) {
  const iovec local{to.data(), to.size()};
  const iovec remote = range_of(address, to.size());
  return present(address) &&
         process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(to.size());
}

bool ProcessMemory::write(std::uint64_t address, std::span<const std::byte> from) {
  const iovec local{const_cast<std::byte*>(from.data()), from.size()};
  const iovec remote = range_of(address, from.size());
  return present(address) &&
         process_vm_writev(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(from.size());
}

void ProcessMemory::request(std::uint64_t address) {
  std::byte byte;
  const iovec local{&byte, 1};
  const iovec remote = range_of(address, 1);
  (void)!process_vm_readv(pid_, &local, 1, &remote, 1, 0);
}

}  // namespace headrace::emulator
