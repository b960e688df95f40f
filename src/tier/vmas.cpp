#include "tier/vmas.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/fail.h"

namespace headrace {
namespace {

constexpr std::size_t kReadAtOnce = 256 << 10;

// "7f00-7f01 rw-p ...": whether the line begins a mapping.
bool parse_head(std::string_view line, Vma& vma) {
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, vma.begin, 16);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, end, vma.end, 16);
  if (second.ec != std::errc{} || end - second.ptr < 5) return false;
  vma.shared = second.ptr[4] == 's';
  return true;
}

// "Referenced:   128 kB".
Bytes parse_kib(std::string_view line) {
  const std::size_t digits = line.find_first_of("0123456789");
  std::uint64_t kib = 0;
  if (digits != line.npos) {
    std::from_chars(line.data() + digits, line.data() + line.size(), kib);
  }
  return Bytes{kib << 10};
}

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

Status for_each_vma(Kernel& kernel, const std::function<void(const Vma&)>& each) {
  const int file = kernel.open("/proc/self/smaps", O_RDONLY);
  if (file < 0) {
    return fail_errno(-file, "cannot read /proc/self/smaps (CONFIG_PROC_PAGE_MONITOR)");
  }
  VmaReader reader(each);
  std::vector<char> text(kReadAtOnce);
  std::size_t kept = 0;  // of a line that has only begun
  ssize_t got = 0;
  int error = 0;
  while (true) {
    got = ::read(file, text.data() + kept, text.size() - kept);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    const std::string_view all(text.data(), kept + static_cast<std::size_t>(got));
    std::size_t at = 0;
    for (std::size_t end; (end = all.find('\n', at)) != all.npos; at = end + 1) {
      reader.line(all.substr(at, end - at));
    }
    kept = all.size() - at;
    std::memmove(text.data(), text.data() + at, kept);
    if (kept == text.size()) text.resize(2 * text.size());  // a path may be long
  }
  ::close(file);
  if (error != 0) return fail_errno(error, "cannot read /proc/self/smaps");
  reader.finish();
  return {};
}

}  // namespace headrace
