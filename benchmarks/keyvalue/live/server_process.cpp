// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "core/fail.h"
#include "headrace/random.h"

namespace headrace::kv_bench {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62, kPresent = std::uint64_t{1} << 63;
// Larger mappings are reserved address space (a sanitizer's shadow), not data.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
constexpr std::size_t kPagesInCall = 512;

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Private writable memory without a file: heaps and anonymous mappings.
std::vector<Mapping> data_of(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  std::vector<Mapping> found;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, device, inode, name;
    words >> range >> rights >> offset >> device >> inode >> name;
    if (!rights.starts_with("rw") || rights.back() != 'p' || inode != "0") continue;
    if (!name.empty() && name != "[heap]" && !name.starts_with("[anon")) continue;
    Mapping mapping;
    mapping.begin = std::strtoull(range.c_str(), nullptr, 16);
    mapping.end = std::strtoull(range.c_str() + range.find('-') + 1, nullptr, 16);
    if (mapping.end - mapping.begin <= kMostBytes) found.push_back(mapping);
  }
  return found;
}

// Addresses of existing pages, in memory or in swap.
struct PagesBySwap {
  std::vector<std::uint64_t> resident;
  std::vector<std::uint64_t> out;
};

Result<PagesBySwap> pages_of(pid_t process) {
  const Descriptor pagemap{
      ::open(fmt::format("/proc/{}/pagemap", process).c_str(), O_RDONLY | O_CLOEXEC)};
  if (pagemap.fd < 0) return fail_errno(errno, fmt::format("cannot see pages of {}", process));
  PagesBySwap pages;
  std::array<std::uint64_t, kPagesInCall> entries;
  for (const auto& [begin, end] : data_of(process)) {
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t wanted = std::min<std::uint64_t>((end - at) / kPage, entries.size());
      const ssize_t got = ::pread(pagemap.fd, entries.data(), wanted * sizeof(std::uint64_t),
                                  static_cast<off_t>(at / kPage * sizeof(std::uint64_t)));
      if (got <= 0) break;  // unmapped meanwhile
      const auto count = static_cast<std::uint64_t>(got) / sizeof(std::uint64_t);
      for (std::uint64_t i = 0; i < count; ++i, at += kPage) {
        if ((entries[i] & kPresent) != 0) pages.resident.push_back(at);
        if ((entries[i] & kSwapped) != 0) pages.out.push_back(at);
      }
    }
  }
  return pages;
}

iovec page_at(std::uint64_t address, std::uint64_t bytes) {
  return {.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
}

// Reads a byte of each page, which maps it.
void bring_in(pid_t process, std::span<const std::uint64_t> pages) {
  std::array<char, kPagesInCall> bytes;
  for (std::size_t i = 0; i < pages.size(); i += kPagesInCall) {
    std::vector<iovec> remote;
    for (const std::uint64_t page : pages.subspan(i, std::min(kPagesInCall, pages.size() - i))) {
      remote.push_back(page_at(page, 1));
    }
    const iovec local{.iov_base = bytes.data(), .iov_len = remote.size()};
    // A page that was unmapped meanwhile ends the call early, which is harmless.
    (void)::process_vm_readv(process, &local, 1, remote.data(), remote.size(), 0);
  }
}

Status send_out(pid_t process, std::span<const std::uint64_t> pages) {
  const Descriptor pidfd{static_cast<int>(::syscall(SYS_pidfd_open, process, 0))};
  if (pidfd.fd < 0) return fail_errno(errno, fmt::format("cannot open process {}", process));
  for (std::size_t i = 0; i < pages.size(); i += kPagesInCall) {
    std::vector<iovec> remote;
    for (const std::uint64_t page : pages.subspan(i, std::min(kPagesInCall, pages.size() - i))) {
      remote.push_back(page_at(page, kPage));
    }
    if (::syscall(SYS_process_madvise, pidfd.fd, remote.data(), remote.size(), MADV_PAGEOUT, 0) <
            0 &&
        errno != ENOMEM && errno != EAGAIN) {
      return fail_errno(errno,
                        fmt::format("cannot page out memory of process {} (root can)", process));
    }
  }
  return {};
}

std::vector<std::uint64_t> drawn(std::span<const std::uint64_t> pages, double share,
                                 std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint64_t> chosen;
  for (const std::uint64_t page : pages) {
    if (random.chance(share)) chosen.push_back(page);
  }
  return chosen;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Status become(std::span<const char* const> program, pid_t parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno(errno, "cannot follow a parent");
  // The parent may have ended before prctl.
  if (::getppid() != parent) return fail(ErrorCode::cancelled, "the parent has ended");
  std::vector<char*> words;
  for (const char* word : program) words.push_back(const_cast<char*>(word));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return fail_errno(errno, fmt::format("cannot start {}", words[0]));
}

std::optional<Usage> usage_of(pid_t process) {
  if (process <= 0) return std::nullopt;
  const std::string stat = text_of(fmt::format("/proc/{}/stat", process));
  const std::size_t name = stat.rfind(')');
  if (name == std::string::npos) return std::nullopt;
  std::istringstream rest(stat.substr(name + 1));
  std::string word;
  for (int i = 0; i < 10; ++i) rest >> word;  // state to major faults
  Usage usage{.major_faults = std::strtoull(word.c_str(), nullptr, 10)};
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), error)) {
    usage.cpu_ns += std::strtod(text_of(task.path() / "schedstat").c_str(), nullptr);
  }
  return usage;
}

Result<PagesOut> page_out(pid_t process, double share, std::uint64_t seed) {
  HEADRACE_TRY(PagesBySwap pages, pages_of(process));
  bring_in(process, pages.out);
  if (share > 0) {
    HEADRACE_TRY(const PagesBySwap all, pages_of(process));
    HEADRACE_TRY_STATUS(send_out(process, drawn(all.resident, share, seed)));
  }
  HEADRACE_TRY(pages, pages_of(process));
  return PagesOut{.data = {(pages.resident.size() + pages.out.size()) * kPage},
                  .out = {pages.out.size() * kPage}};
}

}  // namespace headrace::kv_bench
