// SPDX-License-Identifier: Apache-2.0
#include "tier/vmas.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "core/fail.h"
#include "host/files.h"

namespace headrace {
namespace {

constexpr std::size_t kReadAtOnce = 256 << 10;

// Reads a number that ends at `stop`, and steps over `stop`.
template <class Number>
bool take(std::string_view& text, Number& number, int base, char stop) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number, base);
  if (read.ec != std::errc{} || read.ptr == end || *read.ptr != stop) return false;
  text.remove_prefix(static_cast<std::size_t>(read.ptr + 1 - text.data()));
  return true;
}

// Whether the line begins a mapping: "7f00-7f01 rw-p 00000000 00:01 1033 ...".
bool parse_head(std::string_view line, Vma& vma) {
  if (!take(line, vma.begin, 16, '-') || !take(line, vma.end, 16, ' ') || line.size() < 5) {
    return false;
  }
  vma.accessible = line.starts_with('r') || line[1] == 'w';
  vma.shared = line[3] == 's';
  line.remove_prefix(5);
  std::uint64_t offset = 0;
  unsigned major = 0;
  unsigned minor = 0;
  if (take(line, offset, 16, ' ') && take(line, major, 16, ':') && take(line, minor, 16, ' ')) {
    std::from_chars(line.data(), line.data() + line.size(), vma.file.inode);
    if (vma.file.inode != 0) vma.file.device = makedev(major, minor);
  }
  return true;
}

// The value of "Referenced:   128 kB".
Bytes parse_kib(std::string_view line) { return Bytes{number_in(line).value_or(0) << 10}; }

bool has_flag(std::string_view flags, std::string_view flag) {
  for (std::size_t at = flags.find(flag); at != flags.npos; at = flags.find(flag, at + 1)) {
    const std::size_t end = at + flag.size();
    if (flags[at - 1] == ' ' && (end == flags.size() || flags[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

void VmaReader::line(std::string_view line) {
  if (line.empty()) return;
  Vma next;
  if (const bool lower = line[0] >= 'a' && line[0] <= 'f';
      (lower || (line[0] >= '0' && line[0] <= '9')) && parse_head(line, next)) {
    finish();
    vma_ = next;
    any_ = true;
  } else if (line.starts_with("Rss:")) {
    vma_.present = parse_kib(line);
  } else if (line.starts_with("Referenced:")) {
    vma_.referenced = parse_kib(line);
  } else if (line.starts_with("AnonHugePages:") || line.starts_with("ShmemPmdMapped:")) {
    vma_.huge = vma_.huge || parse_kib(line).value > 0;
  } else if (line.starts_with("VmFlags:")) {
    vma_.huge = vma_.huge || has_flag(line, "hg");
    vma_.hugetlb = has_flag(line, "ht");
    vma_.undumped = has_flag(line, "dd");
    vma_.locked = has_flag(line, "lo");
  }
}

void VmaReader::finish() {
  if (any_) each_(vma_);
  any_ = false;
}

namespace {

// The buffer is allocated before the file is opened, so that the file is closed on every path.
Status read_mappings(Kernel& kernel, const char* path,
                     const std::function<void(const Vma&)>& each) {
  std::vector<char> text(kReadAtOnce);
  HEADRACE_TRY(const OwnDescriptor file, open_proc(kernel, path, O_RDONLY));
  VmaReader reader(each);
  std::size_t kept = 0;  // bytes of an incomplete line
  while (true) {
    const ssize_t got = ::read(file.get(), text.data() + kept, text.size() - kept);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, std::string("cannot read ") + path);
    if (got == 0) break;
    const std::string_view all(text.data(), kept + static_cast<std::size_t>(got));
    std::size_t at = 0;
    for (std::size_t end; (end = all.find('\n', at)) != all.npos; at = end + 1) {
      reader.line(all.substr(at, end - at));
    }
    kept = all.size() - at;
    std::memmove(text.data(), text.data() + at, kept);
    if (kept == text.size()) text.resize(2 * text.size());  // a path may be long
  }
  reader.finish();
  return {};
}

}  // namespace

Status for_each_vma(Kernel& kernel, const std::function<void(const Vma&)>& each) {
  return no_throw([&] { return read_mappings(kernel, "/proc/self/maps", each); });
}

Status for_each_vma_in_detail(Kernel& kernel, const std::function<void(const Vma&)>& each) {
  return no_throw([&] { return read_mappings(kernel, "/proc/self/smaps", each); });
}

}  // namespace headrace
