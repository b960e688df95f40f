// SPDX-License-Identifier: Apache-2.0
#include "tier/process/other_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
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
#include <ranges>

#include "core/fail.h"
#include "core/text/files.h"
#include "host/files.h"
#include "host/kernel.h"
#include "memory/memory.h"
#include "tier/process/fault_stream.h"
#include "tier/vmas.h"

namespace headrace {
namespace {

// Mappings of this size or more count only where they have pages.
constexpr std::uint64_t kReservation = std::uint64_t{1} << 30;
constexpr std::uint64_t kGap = 2 << 20;                           // a gap that is not left out
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PageScan);  // PAGEMAP_SCAN, Linux 6.7
constexpr std::uint64_t kPageIsSwapped = 1 << 4;
constexpr std::uint64_t kPageIsSoftDirty = 1 << 7;
constexpr std::size_t kRangesOfCall = 512;  // UIO_MAXIOV is 1024
constexpr std::size_t kReadAtOnce = 64 << 10;

// Files of /proc report no size.
Result<std::string> proc_file(const std::string& path, const std::string& shown) {
  const auto failed = [&](int error) -> Unexpected {
    if (error != ESRCH) return fail_errno(error, "cannot read " + shown);
    return fail(ErrorCode::absent, "cannot read {}: the process has ended", shown);
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return failed(errno);
  const OwnDescriptor file(descriptor);
  std::string text;
  for (std::size_t have = 0;;) {
    text.resize(have + kReadAtOnce);
    const ssize_t got = ::read(file.get(), &text[have], kReadAtOnce);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    have += static_cast<std::size_t>(got);
    text.resize(have);
    if (got == 0) return text;
  }
}

template <class Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  return std::from_chars(text.data(), text.data() + text.size(), number, base).ec == std::errc{};
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
  LinuxProcess(int pid, OwnDescriptor self, OwnDescriptor directory, OwnDescriptor pagemap)
      : pid_(pid),
        self_(std::move(self)),
        directory_(std::move(directory)),
        pagemap_(std::move(pagemap)) {}

  Result<ProcessState> state() override;
  Bytes huge() override;
  Result<std::vector<TrackedRange>> memory() override;
  Status entries(std::uintptr_t begin, std::span<std::uint64_t> entries) override;
  Status page_out(std::span<const TrackedRange> ranges) override;
  Status bring_in(std::span<const std::uintptr_t> pages) override;
  Bytes swap_free() override;
  Result<std::vector<MappingUse>> use() override;
  bool tells_written() const override;
  Status forget_use() override;
  std::optional<std::uint64_t> hint_rounds() override;
  Status listen() override { return faults_.listen(pid_); }
  std::string unheard() const override { return faults_.unheard(); }
  std::uint64_t take_faults(std::vector<PageFault>& faults) override {
    return faults_.take(faults);
  }

 private:
  // A path through our descriptor: it never opens a later process with the same number.
  std::string path(const char* name) const {
    return fmt::format("/proc/self/fd/{}/{}", directory_.get(), name);
  }
  Result<std::string> read(const char* name) const {
    return proc_file(path(name), fmt::format("/proc/{}/{}", pid_, name));
  }
  // Passes each mapping to `each`, with the fields of smaps.
  Status for_each_mapping(const std::function<void(const Vma&)>& each) const;
  // Why forget_use() must not clear this process's bits, by its open files; "": it may.
  std::string_view why_not_cleared() const;
  // Adds the parts of the range that have pages; false: the kernel cannot say.
  bool add_populated(const TrackedRange& range, std::vector<TrackedRange>& ranges) const;
  Unexpected ended() const { return fail(ErrorCode::absent, "process {} has ended", pid_); }
  Unexpected refused(int error) const {
    if (error == ESRCH) return ended();
    return fail_errno(error,
                      "the kernel refuses to page out memory of another process; it takes root "
                      "(CAP_SYS_NICE) and Linux 5.10; a program itself can use PageTier");
  }

  const int pid_;
  const OwnDescriptor self_;       // a pidfd
  const OwnDescriptor directory_;  // /proc/PID
  const OwnDescriptor pagemap_;    // locked: no other tier has the process
  const std::uint64_t page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  FaultStream faults_;
};

Result<ProcessState> LinuxProcess::state() {
  const auto text = read("stat");
  if (!text && text.error().code != ErrorCode::absent) return Unexpected(text.error());
  if (!text || text->empty()) return ended();
  auto state = parse_state(*text, static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
  return state ? state : ended();
}

Bytes LinuxProcess::huge() {
  const auto sums = read("smaps_rollup");
  return sums ? kib_after(*sums, "AnonHugePages:") : Bytes{};
}

Result<std::vector<TrackedRange>> LinuxProcess::memory() {
  const auto maps = read("maps");
  if (!maps) return Unexpected(maps.error());
  std::vector<TrackedRange> ranges;
  for (const TrackedRange& range : parse_memory(*maps)) {
    if (range.end - range.begin < kReservation || !add_populated(range, ranges)) {
      ranges.push_back(range);
    }
  }
  const auto status = read("status");
  if (!status || kib_after(*status, "VmLck:").value == 0) return ranges;
  std::vector<TrackedRange> locked;
  HEADRACE_TRY_STATUS(for_each_mapping([&](const Vma& vma) {
    if (vma.locked) locked.push_back({vma.begin, vma.end});
  }));
  return without(ranges, locked);
}

Status LinuxProcess::for_each_mapping(const std::function<void(const Vma&)>& each) const {
  const auto smaps = read("smaps");
  if (!smaps) return Unexpected(smaps.error());
  VmaReader reader(each);
  for (const auto line : std::views::split(*smaps, '\n')) {
    reader.line(std::string_view(line.begin(), line.end()));
  }
  reader.finish();
  return {};
}

Result<std::vector<MappingUse>> LinuxProcess::use() {
  HEADRACE_TRY(const std::vector<TrackedRange> ranges, memory());
  std::vector<MappingUse> mappings;
  HEADRACE_TRY_STATUS(for_each_mapping([&](const Vma& vma) {
    const std::size_t first = mappings.size();
    std::uint64_t inside = 0;
    for (auto range = std::ranges::upper_bound(ranges, vma.begin, {}, &TrackedRange::end);
         range != ranges.end() && range->begin < vma.end; ++range) {
      mappings.push_back({{std::max(vma.begin, range->begin), std::min(vma.end, range->end)},
                          vma.huge,
                          vma.present,
                          vma.referenced,
                          {}});
      inside += mappings.back().bytes().value;
    }
    // Parts of a reservation share its touches by size.
    for (MappingUse& each : std::span(mappings).subspan(first)) {
      const double share = static_cast<double>(each.bytes().value) / static_cast<double>(inside);
      for (Bytes* const of : {&each.present, &each.touched}) {
        *of = {static_cast<std::uint64_t>(static_cast<double>(of->value) * share)};
      }
    }
  }));
  for (MappingUse& each : mappings) {
    const Status told = scan_pages(
        system_kernel(), pagemap_.get(), each.begin, each.end, kPageIsSoftDirty, 0,
        [&](const PageRegion& pages) { each.written.push_back({pages.begin, pages.end}); });
    if (!told) break;  // a kernel without
  }
  return mappings;
}

// Tests a page that was just written: kernels without soft-dirty bits list none.
bool LinuxProcess::tells_written() const {
  auto page = MappedMemory::make({page_}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!page) return false;
  *static_cast<volatile std::byte*>(page->memory()) = std::byte{1};
  const auto begin = reinterpret_cast<std::uintptr_t>(page->memory());
  const auto pagemap = open_pagemap(system_kernel());
  bool dirty = false;
  return pagemap &&
         scan_pages(system_kernel(), pagemap->get(), begin, begin + page_, kPageIsSoftDirty, 0,
                    [&](const PageRegion&) { dirty = true; }) &&
         dirty;
}

std::string_view LinuxProcess::why_not_cleared() const {
  std::error_code error;
  std::filesystem::directory_iterator each(path("fd"), error);
  for (; !error && each != std::filesystem::directory_iterator(); each.increment(error)) {
    std::error_code closed;
    const auto target = std::filesystem::read_symlink(each->path(), closed);
    if (const std::string_view why = forbids_clearing(target.native()); !why.empty()) return why;
  }
  return {};
}

// The second write flushes the translations that the first leaves.
Status LinuxProcess::forget_use() {
  if (const std::string_view why = why_not_cleared(); !why.empty()) {
    return fail(ErrorCode::unsupported, "process {} {}", pid_, why);
  }
  const OwnDescriptor file(::open(path("clear_refs").c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 && (errno == ENOENT || errno == ESRCH)) return ended();
  if (file.get() < 0 || ::write(file.get(), "1", 1) < 0) {
    if (errno == ESRCH) return ended();
    return fail_errno(errno, fmt::format("cannot clear the accessed bits of another process "
                                         "(/proc/{}/clear_refs); ask as its user, or as root",
                                         pid_));
  }
  // Kernels without soft-dirty bits refuse this, or do nothing.
  if (::write(file.get(), "4", 1) < 0 && errno == ESRCH) return ended();
  return {};
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
    if (got < 0) return fail_errno(errno, fmt::format("cannot read /proc/{}/pagemap", pid_));
    if (got == 0) return ended();
    done += static_cast<std::size_t>(got) / 8;
  }
  return {};
}

Status LinuxProcess::page_out(std::span<const TrackedRange> ranges) {
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
    // The range after the completed bytes is not pageable.
    std::uint64_t left = done < 0 ? 0 : static_cast<std::uint64_t>(done);
    if (left == all) {
      at += count;
      continue;
    }
    while (left >= ranges[at].bytes().value) left -= ranges[at++].bytes().value;
    ++at;
  }
  return {};
}

Status LinuxProcess::bring_in(std::span<const std::uintptr_t> pages) {
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
    // The page after those read cannot be read.
    at += read == count ? count : read + 1;
  }
  return {};
}

std::optional<std::uint64_t> LinuxProcess::hint_rounds() {
  const auto text = read("sched");
  const auto rounds = text ? text_after(*text, "mm->numa_scan_seq") : std::nullopt;
  return rounds ? number_in(*rounds) : std::nullopt;
}

Bytes LinuxProcess::swap_free() {
  const auto text = proc_file("/proc/meminfo", "/proc/meminfo");
  return text ? kib_after(*text, "SwapFree:") : Bytes{};
}

}  // namespace

bool has_ended(int pidfd) {
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) != 0;
}

std::string_view forbids_clearing(std::string_view target) {
  // A garbage collector that treats pages without the soft-dirty bit as unchanged would free memory
  // in use.
  if (target.ends_with("/clear_refs")) {
    return "goes by its accessed or soft-dirty bits itself (it has clear_refs open), which would "
           "be lost to it; leave it alone, or beside swap (--slow swap)";
  }
  // Whenever soft-dirty bits are cleared, the kernel tells these devices that all addresses of the
  // process are invalid. They drop their own page tables and stop until they are rebuilt.
  for (const std::string_view device : {"anon_inode:kvm-vm", "/dev/kfd", "/dev/nvidia-uvm",
                                        "/dev/dri/renderD", "/dev/infiniband/uverbs"}) {
    if (!target.starts_with(device)) continue;
    return "shares its page table with a virtual machine, a GPU or an RDMA device, which would "
           "stop each time that its soft-dirty bits are cleared; ask for --source damon, or "
           "--slow swap";
  }
  return {};
}

Result<ProcessState> parse_state(std::string_view stat, std::uint64_t ticks_per_second) {
  // The name may contain blanks and brackets.
  const std::size_t name = stat.rfind(')');
  if (name == stat.npos) return fail(ErrorCode::invalid, "no /proc/PID/stat: '{}'", stat);
  std::string_view rest = stat.substr(name + 1);
  const std::string_view state = word(rest);
  if (state == "Z" || state == "X") return fail(ErrorCode::absent, "the process has ended");
  // Numbered as in proc(5).
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
  const long self = pid > 0 ? ::syscall(SYS_pidfd_open, pid, 0) : -1;
  if (self < 0 && (pid <= 0 || errno == ESRCH || errno == EINVAL)) {
    return fail(ErrorCode::absent, "there is no process {}", pid);
  }
  if (self < 0) return fail_errno(errno, "cannot hold process " + std::to_string(pid));
  OwnDescriptor held(static_cast<int>(self));
  OwnDescriptor directory(
      ::open(fmt::format("/proc/{}", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  // Refuses a later process with the same PID.
  if (directory.get() < 0 || has_ended(held.get())) {
    return fail(ErrorCode::absent, "there is no process {}", pid);
  }
  const auto path = [&](const char* name) {
    return fmt::format("/proc/self/fd/{}/{}", directory.get(), name);
  };
  std::error_code none;
  (void)std::filesystem::read_symlink(path("exe"), none);
  if (none == std::errc::no_such_file_or_directory) {
    return fail(ErrorCode::unsupported, "process {} is a thread of the kernel, without memory",
                pid);
  }
  const int pagemap = ::open(path("pagemap").c_str(), O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) {
    return fail(ErrorCode::denied,
                "process {} is not to be looked at by this user; ask as root (CAP_SYS_PTRACE and "
                "CAP_SYS_NICE)",
                pid);
  }
  OwnDescriptor entries(pagemap);
  if (::flock(pagemap, LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::exhausted,
                "process {} is tiered already; end the other headrace tier first", pid);
  }
  return std::make_unique<LinuxProcess>(pid, std::move(held), std::move(directory),
                                        std::move(entries));
}

}  // namespace headrace
