// SPDX-License-Identifier: Apache-2.0
#include "headrace/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "backend/storage/storage.h"
#include "core/fail.h"
#include "core/text/files.h"

namespace headrace {
namespace {

// Used if neither statx nor sysfs reports the alignment; no common device has larger blocks.
constexpr std::uint32_t kUnknownAlignment = 4096;
// Bounce buffers are aligned to pages and hold 256 KiB.
constexpr std::uint32_t kLargestBlock = 256 << 10;
// mincore examines a large file in windows, so that its answer (a byte per page) stays small: 256
// KiB for 1 GiB of file.
constexpr std::uint64_t kResidencyWindow = 1ULL << 30;

// The path on one line in quotes, for any bytes in its name.
std::string quote(const std::filesystem::path& path) {
  std::string text = "\"";
  for (const char c : path.native()) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text + '"';
}

Unexpected fail_to_open(int error, const std::filesystem::path& path) {
  if (error != EBUSY) return fail_errno(error, "cannot open " + quote(path));
  return fail(ErrorCode::denied, "the device {} is in use; unmount it, or close its other users",
              quote(path));
}

// The disk of `device` in sysfs; a partition is a directory inside its disk's. Empty if it is no
// block device (btrfs, overlay, tmpfs).
std::filesystem::path disk_of(dev_t device) {
  std::error_code error;
  auto path = std::filesystem::canonical(
      fmt::format("/sys/dev/block/{}:{}", major(device), minor(device)), error);
  if (error) return {};
  return std::filesystem::exists(path / "partition", error) ? path.parent_path() : path;
}

// The device that `status` is of: its own if it is a block device, else that of its file system.
dev_t device_of(const struct stat& status) {
  return S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
}

bool same_device(dev_t a, dev_t b) {
  if (a == b) return true;
  const auto disk = disk_of(a);
  return !disk.empty() && disk == disk_of(b);
}

// The storage node whose path is on the disk of `device`, or is that disk, else the first one.
std::optional<NodeId> node_of_device(const Machine& machine, dev_t device) {
  std::optional<NodeId> first;
  for (const Node* node : machine.of_kind(NodeKind::storage)) {
    struct stat status{};
    if (!node->path.empty() && stat(node->path.c_str(), &status) == 0 &&
        same_device(device_of(status), device)) {
      return node->id;
    }
    if (!first) first = node->id;
  }
  return first;
}

std::optional<std::uint32_t> logical_block(dev_t device) {
  const auto base = fmt::format("/sys/dev/block/{}:{}/", major(device), minor(device));
  for (const char* queue : {"queue", "../queue"}) {  // for a disk, or for a partition
    const std::string line = first_line(base + queue + "/logical_block_size");
    std::uint32_t bytes = 0;
    std::from_chars(line.data(), line.data() + line.size(), bytes);
    if (std::has_single_bit(bytes)) return bytes;
  }
  return std::nullopt;
}

// tmpfs and ramfs accept O_DIRECT since 6.6 and serve it from the page cache, which holds their
// files. So there is nothing to bypass. A device is not in the file system of its name.
bool lives_in_page_cache(int fd) {
  struct stat kind{};
  struct statfs status{};
  return fstat(fd, &kind) == 0 && !S_ISBLK(kind.st_mode) && fstatfs(fd, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

// The alignment of direct requests on `fd`; empty if the file system serves none.
std::optional<DirectAlignment> direct_alignment(int fd, dev_t device) {
  if (lives_in_page_cache(fd)) return std::nullopt;
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    // Blocks larger than a bounce buffer are not supported.
    if (status.stx_dio_offset_align == 0 || status.stx_dio_offset_align > kLargestBlock ||
        status.stx_dio_mem_align > kUnknownAlignment) {
      return std::nullopt;
    }
    return DirectAlignment{.memory = status.stx_dio_mem_align,
                           .offset = status.stx_dio_offset_align};
  }
#endif
  const std::uint32_t block = logical_block(device).value_or(kUnknownAlignment);
  return DirectAlignment{.memory = block, .offset = block};
}

}  // namespace

// fstat() gives no size of a block device. lseek() of a file may wait for writes to it (overlayfs).
std::optional<Bytes> storage::size_now(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return std::nullopt;
  const off_t end = S_ISBLK(status.st_mode) ? lseek(fd, 0, SEEK_END) : status.st_size;
  if (end < 0) return std::nullopt;
  return Bytes{static_cast<std::uint64_t>(end)};
}

// Closes the descriptors that open() has so far, if it fails.
struct File::Opened {
  ~Opened() {
    if (direct_fd >= 0) close(direct_fd);
    if (buffered_fd >= 0) close(buffered_fd);
  }
  // The name of the open file, even if its path now names another.
  std::string again() const { return fmt::format("/proc/self/fd/{}", buffered_fd); }
  // Opens a second descriptor past the page cache, if the file system supports that.
  Status open_direct(int flags, dev_t device, const std::filesystem::path& path);
  // Replaces the descriptor of a block device by one that excludes mounts and other such openers.
  Status claim(int flags, const std::filesystem::path& path);

  int direct_fd = -1;
  int buffered_fd = -1;
  DirectAlignment alignment;
};

Status File::Opened::open_direct(int flags, dev_t device, const std::filesystem::path& path) {
  direct_fd = ::open(again().c_str(), flags | O_DIRECT);
  if (direct_fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    return fail_errno(errno, "cannot open " + quote(path) + " past the page cache (ulimit -n)");
  }
  if (direct_fd < 0) return {};
  if (const auto found = direct_alignment(direct_fd, device)) {
    alignment = *found;
  } else {
    close(std::exchange(direct_fd, -1));
  }
  return {};
}

Status File::Opened::claim(int flags, const std::filesystem::path& path) {
  const int claimed = ::open(again().c_str(), flags | O_EXCL);
  if (claimed < 0) return fail_to_open(errno, path);
  close(std::exchange(buffered_fd, claimed));
  int read_only = 0;
  if (ioctl(claimed, BLKROGET, &read_only) != 0 || read_only == 0) return {};
  return fail(ErrorCode::denied, "the device {} is read-only; open it for reading", quote(path));
}

File::File(std::filesystem::path path, Bytes size, NodeId node, Opened&& opened, bool writable)
    : Object(size, node, nullptr),
      path_(std::move(path)),
      direct_fd_(std::exchange(opened.direct_fd, -1)),
      buffered_fd_(std::exchange(opened.buffered_fd, -1)),
      alignment_(opened.alignment),
      writable_(writable) {}

File::~File() {
  if (direct_fd_ >= 0) close(direct_fd_);
  close(buffered_fd_);
}

std::string File::quoted() const { return quote(path_); }

Result<std::unique_ptr<File>> File::open(const Machine& machine, const std::filesystem::path& path,
                                         FileOptions options) {
  if (path.empty()) return fail(ErrorCode::invalid, "a file needs a name; the path is empty");
  const int flags = (options.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
  Opened opened;
  // Without O_NONBLOCK, opening a FIFO would wait for its other end.
  opened.buffered_fd = ::open(path.c_str(), flags | O_NONBLOCK);
  if (opened.buffered_fd < 0 && errno != ENXIO && errno != EISDIR) {
    return fail_to_open(errno, path);
  }
  struct stat status{};
  if (opened.buffered_fd >= 0 && fstat(opened.buffered_fd, &status) != 0) {
    return fail_errno(errno, "cannot ask for the size of " + quote(path));
  }
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
    return fail(ErrorCode::invalid, "{} is neither a regular file nor a block device; give one",
                quote(path));
  }
  if (S_ISBLK(status.st_mode) && options.writable) HEADRACE_TRY_STATUS(opened.claim(flags, path));
  // If the flag stayed, io_uring would end a cold read with EAGAIN on devices that must wait
  // (dm-crypt, loop).
  if (fcntl(opened.buffered_fd, F_SETFL, flags & O_ACCMODE) != 0) {
    return fail_errno(errno, "cannot set the flags of " + quote(path));
  }
  const std::optional<NodeId> node = node_of_device(machine, device_of(status));
  if (!node) {
    return fail(ErrorCode::unsupported,
                "the machine \"{}\" has no storage node for {}; discover it with a storage path",
                machine.name, quote(path));
  }
  if (options.direct) HEADRACE_TRY_STATUS(opened.open_direct(flags, device_of(status), path));
  const std::optional<Bytes> size = storage::size_now(opened.buffered_fd);
  if (!size) return fail_errno(errno, "cannot ask for the size of " + quote(path));
  if (S_ISBLK(status.st_mode) && *size == 0_B) {
    return fail(ErrorCode::absent, "{} has 0 bytes; insert its medium, or attach the loop device",
                quote(path));
  }
  return std::unique_ptr<File>(new File(path, *size, *node, std::move(opened), options.writable));
}

Result<Bytes> File::update_size() {
  const std::optional<Bytes> now = storage::size_now(buffered_fd_);
  if (!now) return fail_errno(errno, "cannot ask for the size of " + quoted());
  grown_to(*now);
  return size();
}

Result<FileVersion> File::version() const {
  struct stat status{};
  if (fstat(buffered_fd_, &status) != 0) {
    return fail_errno(errno, "cannot ask for the version of " + quoted());
  }
  if (S_ISBLK(status.st_mode)) {
    return fail(ErrorCode::unsupported,
                "{} is a block device, for which the kernel keeps no times of changes; call "
                "invalidate() after each change by another program",
                quoted());
  }
  const auto since_1970 = [](const timespec& time) {
    return Nanoseconds{std::chrono::seconds{time.tv_sec}} + Nanoseconds{time.tv_nsec};
  };
  return FileVersion{.inode = status.st_ino,
                     .size = Bytes{static_cast<std::uint64_t>(status.st_size)},
                     .modified = since_1970(status.st_mtim),
                     .changed = since_1970(status.st_ctim)};
}

Status File::sync() const {
  if (fdatasync(buffered_fd_) == 0) return {};
  return fail_errno(errno, "cannot make durable what was written to " + quoted());
}

Status File::drop_page_cache() const {
  // Dirty pages cannot be dropped, so they are written first.
  if (writable_) HEADRACE_TRY_STATUS(sync());
  if (const int error = posix_fadvise(buffered_fd_, 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    return fail_errno(error, "cannot drop the page cache of " + quoted());
  }
  return {};
}

// To other users the kernel reports every page as present (mincore(2), since Linux 5.2).
bool File::residency_is_told() const {
  struct stat status{};
  if (fstat(buffered_fd_, &status) != 0) return false;
  const std::string path = fmt::format("/proc/self/fd/{}", buffered_fd_);
  return status.st_uid == geteuid() || faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

Result<Bytes> File::page_cache_residency() const { return page_cache_residency(0, size()); }

Result<Bytes> File::page_cache_residency(std::uint64_t begin, Bytes length) const {
  if (!residency_is_told()) {
    return fail(ErrorCode::denied,
                "the kernel tells what the page cache holds of {} only to its owner and to those "
                "who may write it; use a copy of your own",
                quoted());
  }
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (begin % page != 0) {
    return fail(ErrorCode::invalid, "offset {} is no multiple of a page; give one of {} bytes",
                begin, page);
  }
  const std::uint64_t end =
      begin + std::min(length.value, size().value - std::min(begin, size().value));
  std::vector<unsigned char> present;
  std::uint64_t pages = 0;
  for (std::uint64_t offset = begin; offset < end; offset += kResidencyWindow) {
    const std::uint64_t bytes = std::min(kResidencyWindow, end - offset);
    // Mapping touches no page: mincore examines the page cache, not the page table.
    void* map =
        mmap(nullptr, bytes, PROT_READ, MAP_SHARED, buffered_fd_, static_cast<off_t>(offset));
    if (map == MAP_FAILED) return fail_errno(errno, "cannot map " + quoted());
    present.assign((bytes + page - 1) / page, 0);
    const int failed = mincore(map, bytes, present.data()) == 0 ? 0 : errno;
    munmap(map, bytes);
    if (failed != 0) return fail_errno(failed, "cannot ask for the pages of " + quoted());
    for (const unsigned char p : present) pages += p & 1U;
  }
  return Bytes{std::min(pages * page, end - std::min(begin, end))};
}

}  // namespace headrace
