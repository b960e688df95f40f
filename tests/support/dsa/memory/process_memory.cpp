// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/process_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string>

#include "core/fail.h"

namespace headrace::emulator {
namespace {

// Documentation/admin-guide/mm/pagemap.rst: bit 63 of a page's entry.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;

// Elements of one call: a transfer may be cut short only between them, so each is within a page.
constexpr std::size_t kElements = 64;

// Calls `move` (process_vm_readv or -writev) until all is moved or a page stops it.
template <class Move>
std::size_t by_pages(std::uint64_t address, std::byte* local, std::size_t size, Move move) {
  std::size_t done = 0;
  while (done < size) {
    std::array<iovec, kElements> remote;
    std::size_t count = 0;
    std::size_t asked = 0;
    while (count < kElements && done + asked < size) {
      const std::uint64_t at = address + done + asked;
      const auto n = static_cast<std::size_t>(
          std::min<std::uint64_t>(kPage - at % kPage, size - done - asked));
      remote[count++] = {reinterpret_cast<void*>(at), n};
      asked += n;
    }
    const iovec to{local + done, asked};
    const ssize_t moved = move(to, remote.data(), count);
    if (moved > 0) done += static_cast<std::size_t>(moved);
    if (moved < static_cast<ssize_t>(asked)) break;
  }
  return done;
}

}  // namespace

Result<std::unique_ptr<ProcessMemory>> ProcessMemory::open(pid_t pid,
                                                           ProcessMemoryOptions options) {
  // Nothing is read, but the right to is checked.
  iovec none{};
  if (process_vm_readv(pid, &none, 1, &none, 1, 0) < 0) {
    return fail_errno(errno, fmt::format("cannot reach the memory of process {}", pid));
  }
  int pagemap = -1;
  if (options.absent_pages_fault) {
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

// How many of the bytes, from the front, lie on pages that are in memory.
std::size_t ProcessMemory::present(std::uint64_t address, std::size_t size) const {
  if (pagemap_ < 0) return size;
  std::size_t done = 0;
  while (done < size) {
    std::uint64_t entry = 0;
    const auto offset = static_cast<off_t>((address + done) / kPage * sizeof(entry));
    if (offset < 0 || pread(pagemap_, &entry, sizeof(entry), offset) != sizeof(entry)) break;
    if ((entry & kPresent) == 0) break;
    done += kPage - (address + done) % kPage;
  }
  return std::min(done, size);
}

std::size_t ProcessMemory::read(std::uint64_t address, std::span<std::byte> to) {
  return by_pages(address, to.data(), present(address, to.size()),
                  [&](const iovec& local, const iovec* remote, std::size_t count) {
                    return process_vm_readv(pid_, &local, 1, remote, count, 0);
                  });
}

std::size_t ProcessMemory::write(std::uint64_t address, std::span<const std::byte> from) {
  return by_pages(address, const_cast<std::byte*>(from.data()), present(address, from.size()),
                  [&](const iovec& local, const iovec* remote, std::size_t count) {
                    return process_vm_writev(pid_, &local, 1, remote, count, 0);
                  });
}

// Whether a mapping that holds `address` may be written.
bool ProcessMemory::may_write(std::uint64_t address) const {
  std::FILE* maps = std::fopen(fmt::format("/proc/{}/maps", pid_).c_str(), "re");
  if (maps == nullptr) return false;
  bool may = false;
  char* line = nullptr;
  std::size_t room = 0;
  while (getline(&line, &room, maps) >= 0) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char rights[5] = "";
    if (std::sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
    if (address < begin || address >= end) continue;
    may = rights[1] == 'w';
    break;
  }
  std::free(line);
  std::fclose(maps);
  return may;
}

std::size_t ProcessMemory::reach(std::uint64_t address, std::size_t size, Touch touch) {
  std::size_t done = 0;
  while (done < size) {
    const std::uint64_t at = address + done;
    std::byte byte;
    if (read(at, {&byte, 1}) == 0 || (touch == Touch::write && !may_write(at))) break;
    done += kPage - at % kPage;
  }
  return std::min(done, size);
}

// The kernel brings the page in for a read; copy on write it does itself when it comes to that.
bool ProcessMemory::resolve(std::uint64_t address, Touch touch) {
  std::byte byte;
  const iovec local{&byte, 1};
  const iovec remote{reinterpret_cast<void*>(address), 1};
  if (process_vm_readv(pid_, &local, 1, &remote, 1, 0) != 1) return false;
  return touch == Touch::read || may_write(address);
}

}  // namespace headrace::emulator
