#include "tier/process/other_process.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ranges>

#include "core/fail.h"
#include "core/text/files.h"
#include "tier/kernel.h"
#include "tier/process/fault_stream.h"
#include "tier/vmas.h"

namespace headrace {
namespace {

// A reservation of so many addresses is looked at only where it has pages.
constexpr std::uint64_t kReservation = std::uint64_t{1} << 30;
constexpr std::uint64_t kGap = 2 << 20;                           // that is not left out
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PageScan);  // PAGEMAP_SCAN, Linux 6.7
constexpr std::uint64_t kPageIsSwapped = 1 << 4;
constexpr std::size_t kRangesOfCall = 512;  // UIO_MAXIOV is 1024

// Files of /proc tell no size.
Result<std::string> proc_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return fail_errno(errno == 0 ? ENOENT : errno, "cannot read " + path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  // A process that has gone has files without text.
  if (file.bad()) return fail(ErrorCode::absent, "cannot read {}", path);
  return text;
}

template <class Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  return std::from_chars(text.data(), text.data() + text.size(), number, base).ec == std::errc{};
}

// The KiB of a line such as "VmLck:  12 kB"; 0 where there is no such line.
Bytes parse_field(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == text.npos) return {};
  const std::size_t digits = text.find_first_of("0123456789", at + name.size());
  std::uint64_t kib = 0;
  if (digits != text.npos) parse_number(text.substr(digits), kib);
  return Bytes{kib << 10};
}

std::string_view word(std::string_view& line) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t end = std::min(line.find(' ', begin), line.size());
  const std::string_view found = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return found;
}

class LinuxProcess final : public OtherProcess {
 public:
  LinuxProcess(int pid, OwnDescriptor self, OwnDescriptor pagemap)
      : pid_(pid), self_(std::move(self)), pagemap_(std::move(pagemap)) {}

  Result<ProcessState> state() override;
  Result<std::vector<TrackedRange>> memory() override;
  Status entries(std::uintptr_t begin, std::span<std::uint64_t> entries) override;
  Result<PagedOut> page_out(std::span<const TrackedRange> ranges) override;
  Result<std::size_t> bring_in(std::span<const std::uintptr_t> pages) override;
  Bytes swap_free() override;
  std::optional<std::uint64_t> hint_rounds() override;
  Status listen() override { return faults_.listen(pid_); }
  std::uint64_t take_faults(std::vector<PageFault>& faults) override {
    return faults_.take(faults);
  }

 private:
  std::string path(const char* name) const { return fmt::format("/proc/{}/{}", pid_, name); }
  // Adds the parts of the range that have pages; false: the kernel cannot tell.
  bool add_populated(const TrackedRange& range, std::vector<TrackedRange>& ranges) const;
  std::unexpected<Error> ended() const {
    return fail(ErrorCode::absent, "process {} has ended", pid_);
  }
  std::unexpected<Error> refused(int error) const {
    if (error == ESRCH) return ended();
    return fail_errno(error,
                      "the kernel refuses to page out memory of another process; it takes root "
                      "(CAP_SYS_NICE) and Linux 5.10; a program itself can use PageTier");
  }

  const int pid_;
  const OwnDescriptor self_;  // a pidfd
  const OwnDescriptor pagemap_;
  const std::uint64_t page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  FaultStream faults_;
};

Result<ProcessState> LinuxProcess::state() {
  const auto text = proc_file(path("stat"));
  if (!text || text->empty()) return ended();
  auto state = parse_state(*text, static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
  return state ? state : ended();
}

Result<std::vector<TrackedRange>> LinuxProcess::memory() {
  const auto maps = proc_file(path("maps"));
  if (!maps) return std::unexpected(maps.error());
  std::vector<TrackedRange> ranges;
  for (const TrackedRange& range : parse_memory(*maps)) {
    if (range.end - range.begin < kReservation || !add_populated(range, ranges)) {
      ranges.push_back(range);
    }
  }
  const auto status = proc_file(path("status"));
  if (!status || parse_field(*status, "VmLck:").value == 0) return ranges;
  const auto smaps = proc_file(path("smaps"));
  if (!smaps) return std::unexpected(smaps.error());
  std::vector<TrackedRange> locked;
  const std::function<void(const Vma&)> note = [&](const Vma& vma) {
    if (vma.locked) locked.push_back({vma.begin, vma.end});
  };
  VmaReader reader(note);
  for (const auto line : std::views::split(*smaps, '\n')) {
    reader.line(std::string_view(line.begin(), line.end()));
  }
  reader.finish();
  return without(ranges, locked);
}

bool LinuxProcess::add_populated(const TrackedRange& range,
                                 std::vector<TrackedRange>& ranges) const {
  std::array<PageRegion, 1024> regions;
  std::vector<TrackedRange> found;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    PageScan scan;
    scan.begin = at;
    scan.end = range.end;
    scan.regions = reinterpret_cast<std::uintptr_t>(regions.data());
    scan.region_count = regions.size();
    scan.category_anyof_mask = kPageIsPresent | kPageIsSwapped;
    const int count = ::ioctl(pagemap_.get(), kPagemapScan, &scan);
    if (count < 0 || scan.walk_end <= at) return false;
    for (const PageRegion& each : std::span(regions).first(static_cast<std::size_t>(count))) {
      if (!found.empty() && each.begin - found.back().end < kGap) {
        found.back().end = each.end;
      } else {
        found.push_back({each.begin, each.end});
      }
    }
    at = scan.walk_end;
  }
  ranges.insert(ranges.end(), found.begin(), found.end());
  return true;
}

Status LinuxProcess::entries(std::uintptr_t begin, std::span<std::uint64_t> entries) {
  for (std::size_t done = 0; done < entries.size();) {
    const ssize_t got = ::pread(pagemap_.get(), &entries[done], (entries.size() - done) * 8,
                                static_cast<off_t>(begin / page_ + done) * 8);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "cannot read " + path("pagemap"));
    if (got == 0) return ended();
    done += static_cast<std::size_t>(got) / 8;
  }
  return {};
}

Result<PagedOut> LinuxProcess::page_out(std::span<const TrackedRange> ranges) {
  PagedOut result;
  std::array<iovec, kRangesOfCall> parts;
  if (ranges.empty() &&
      ::syscall(SYS_process_madvise, self_.get(), parts.data(), 0, MADV_PAGEOUT, 0) < 0) {
    return refused(errno);
  }
  for (std::size_t at = 0; at < ranges.size();) {
    const std::size_t count = std::min(ranges.size() - at, parts.size());
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = {reinterpret_cast<void*>(ranges[at + i].begin), ranges[at + i].bytes().value};
      all += parts[i].iov_len;
    }
    const long done =
        ::syscall(SYS_process_madvise, self_.get(), parts.data(), count, MADV_PAGEOUT, 0);
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (done < 0 && (errno == ESRCH || errno == EPERM || errno == EACCES || errno == ENOSYS)) {
      return refused(errno);
    }
    // Behind the bytes that were done is a range that is not.
    std::uint64_t left = done < 0 ? 0 : static_cast<std::uint64_t>(done);
    result.asked += Bytes{left};
    if (left == all) {
      at += count;
      continue;
    }
    while (left >= ranges[at].bytes().value) left -= ranges[at++].bytes().value;
    result.refused += ranges[at++].bytes() - Bytes{left};
  }
  return result;
}

Result<std::size_t> LinuxProcess::bring_in(std::span<const std::uintptr_t> pages) {
  std::size_t there = 0;
  std::array<std::byte, kRangesOfCall> bytes;
  std::array<iovec, kRangesOfCall> parts;
  for (std::size_t at = 0; at < pages.size();) {
    const std::size_t count = std::min(pages.size() - at, parts.size());
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = {reinterpret_cast<void*>(pages[at + i]), 1};
    }
    const iovec here{bytes.data(), count};
    const ssize_t got = ::process_vm_readv(pid_, &here, 1, parts.data(), count, 0);
    if (got < 0 && errno == ESRCH) return ended();
    if (got < 0 && errno != EFAULT) return fail_errno(errno, "cannot read memory of the process");
    const std::size_t read = got < 0 ? 0 : static_cast<std::size_t>(got);
    there += read;
    // Behind those read is one that cannot be.
    at += read == count ? count : read + 1;
  }
  return there;
}

std::optional<std::uint64_t> LinuxProcess::hint_rounds() {
  const auto text = proc_file(path("sched"));
  constexpr std::string_view kName = "mm->numa_scan_seq";
  const std::size_t at = text ? text->find(kName) : std::string::npos;
  std::uint64_t rounds = 0;
  if (at == std::string::npos) return std::nullopt;
  const std::size_t digits = text->find_first_of("0123456789", at + kName.size());
  if (digits == std::string::npos ||
      !parse_number(std::string_view(*text).substr(digits), rounds)) {
    return std::nullopt;
  }
  return rounds;
}

Bytes LinuxProcess::swap_free() {
  const auto text = proc_file("/proc/meminfo");
  return text ? parse_field(*text, "SwapFree:") : Bytes{};
}

}  // namespace

Result<ProcessState> parse_state(std::string_view stat, std::uint64_t ticks_per_second) {
  // The name may hold blanks and brackets.
  const std::size_t name = stat.rfind(')');
  if (name == stat.npos) return fail(ErrorCode::invalid, "no /proc/PID/stat: '{}'", stat);
  std::string_view rest = stat.substr(name + 1);
  const std::string_view state = word(rest);
  if (state == "Z" || state == "X") return fail(ErrorCode::absent, "the process has ended");
  // By their numbers in proc(5).
  std::array<std::uint64_t, 27> fields{};
  for (std::size_t i = 4; i < fields.size(); ++i) parse_number(word(rest), fields[i]);
  ProcessState parsed{
      .started = fields[22],
      .start_code = fields[26],
      .major_faults = fields[12],
      .threads = fields[20],
      .resident = Bytes{fields[24] * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
  parsed.cpu = std::chrono::nanoseconds{
      static_cast<std::int64_t>((fields[14] + fields[15]) * (1'000'000'000 / ticks_per_second))};
  return parsed;
}

std::vector<TrackedRange> parse_memory(std::string_view maps) {
  std::vector<TrackedRange> ranges;
  for (const auto each : std::views::split(maps, '\n')) {
    std::string_view line(each.begin(), each.end());
    const std::string_view span = word(line);
    const std::string_view rights = word(line);
    word(line);
    word(line);
    const std::string_view inode = word(line);
    const std::string_view name = word(line);
    const std::size_t dash = span.find('-');
    TrackedRange range;
    if (dash == span.npos || !parse_number(span.substr(0, dash), range.begin, 16) ||
        !parse_number(span.substr(dash + 1), range.end, 16)) {
      continue;
    }
    if (!rights.starts_with("rw") || rights.size() < 4 || rights[3] != 'p' || inode != "0") {
      continue;
    }
    if (name.starts_with("[stack") || name.starts_with("[v")) continue;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

std::vector<TrackedRange> without(std::span<const TrackedRange> ranges,
                                  std::span<const TrackedRange> holes) {
  std::vector<TrackedRange> rest;
  for (TrackedRange range : ranges) {
    for (const TrackedRange& hole : holes) {
      if (hole.end <= range.begin || hole.begin >= range.end) continue;
      if (hole.begin > range.begin) rest.push_back({range.begin, hole.begin});
      range.begin = std::min(hole.end, range.end);
    }
    if (range.begin < range.end) rest.push_back(range);
  }
  return rest;
}

Result<std::unique_ptr<OtherProcess>> open_process(int pid) {
  if (pid == ::getpid()) {
    return fail(ErrorCode::invalid, "process {} is this one; for memory of one's own use PageTier",
                pid);
  }
  const auto directory = std::filesystem::path("/proc") / std::to_string(pid);
  const long self = pid > 0 ? ::syscall(SYS_pidfd_open, pid, 0) : -1;
  if (self < 0 && (pid <= 0 || errno == ESRCH || errno == EINVAL)) {
    return fail(ErrorCode::absent, "there is no process {}", pid);
  }
  if (self < 0) return fail_errno(errno, "cannot hold process " + std::to_string(pid));
  OwnDescriptor held(static_cast<int>(self));
  std::error_code none;
  (void)std::filesystem::read_symlink(directory / "exe", none);
  if (none == std::errc::no_such_file_or_directory) {
    return fail(ErrorCode::unsupported, "process {} is a thread of the kernel, without memory",
                pid);
  }
  const int pagemap = ::open((directory / "pagemap").c_str(), O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) {
    return fail(ErrorCode::denied,
                "process {} is not to be looked at by this user; ask as root (CAP_SYS_PTRACE and "
                "CAP_SYS_NICE)",
                pid);
  }
  OwnDescriptor entries(pagemap);
  return std::make_unique<LinuxProcess>(pid, std::move(held), std::move(entries));
}

}  // namespace headrace
