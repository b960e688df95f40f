#include "headrace/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <optional>
#include <vector>

#include "core/fail.h"

namespace headrace {
namespace {

// Where neither statx nor sysfs says what the device needs: no common device has larger blocks.
constexpr std::uint32_t kUnknownAlignment = 4096;
// mincore of a large file is asked for in windows, so that its answer (a byte per page) stays
// small: 1 GiB of file is 256 KiB of answer.
constexpr std::uint64_t kResidencyWindow = 1ULL << 30;

// The path on one line in quotes, whatever bytes its name holds.
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

// The storage node whose path lies on device `device`, else the first storage node.
std::optional<NodeId> node_of_device(const Machine& machine, dev_t device) {
  std::optional<NodeId> first;
  for (const Node* node : machine.of_kind(NodeKind::storage)) {
    struct stat status{};
    if (!node->path.empty() && stat(node->path.c_str(), &status) == 0 && status.st_dev == device) {
      return node->id;
    }
    if (!first) first = node->id;
  }
  return first;
}

std::optional<std::uint32_t> logical_block(dev_t device) {
  const auto base = fmt::format("/sys/dev/block/{}:{}/", major(device), minor(device));
  for (const char* queue : {"queue", "../queue"}) {  // a disk, or a partition of one
    std::ifstream file(base + queue + "/logical_block_size");
    if (std::uint32_t bytes = 0; file >> bytes && std::has_single_bit(bytes)) return bytes;
  }
  return std::nullopt;
}

// What direct requests on `fd` must keep; nothing if the file system serves none.
std::optional<DirectAlignment> direct_alignment(int fd, dev_t device) {
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    if (status.stx_dio_offset_align == 0) return std::nullopt;
    return DirectAlignment{.memory = status.stx_dio_mem_align,
                           .offset = status.stx_dio_offset_align};
  }
#endif
  const std::uint32_t block = logical_block(device).value_or(kUnknownAlignment);
  return DirectAlignment{.memory = block, .offset = block};
}

}  // namespace

struct File::Opened {
  int direct_fd = -1;
  int buffered_fd = -1;
  DirectAlignment alignment;
};

File::File(std::filesystem::path path, Bytes size, NodeId node, const Opened& opened, bool writable)
    : Object(size, node, nullptr),
      path_(std::move(path)),
      direct_fd_(opened.direct_fd),
      buffered_fd_(opened.buffered_fd),
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
  // Without O_NONBLOCK opening a FIFO would wait for its other end.
  const int flags = (options.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK;
  Opened opened;
  opened.buffered_fd = ::open(path.c_str(), flags);
  if (opened.buffered_fd < 0) {
    if (errno == ENXIO || errno == EISDIR) {
      return fail(ErrorCode::invalid, "{} is not a regular file; give one", quote(path));
    }
    return fail_errno(errno, "cannot open " + quote(path));
  }
  struct stat status{};
  const bool known = fstat(opened.buffered_fd, &status) == 0;
  const std::optional<NodeId> node = known ? node_of_device(machine, status.st_dev) : std::nullopt;
  if (!known || !S_ISREG(status.st_mode) || !node) {
    const int error = errno;
    close(opened.buffered_fd);
    if (!known) return fail_errno(error, "cannot ask for the size of " + quote(path));
    if (!S_ISREG(status.st_mode)) {
      return fail(ErrorCode::invalid, "{} is not a regular file; give one", quote(path));
    }
    return fail(ErrorCode::unsupported,
                "the machine \"{}\" has no storage node for {}; discover it with a storage path",
                machine.name, quote(path));
  }
  if (options.direct) {
    // The same file even if its name has been given to another since: by its descriptor.
    const auto same = fmt::format("/proc/self/fd/{}", opened.buffered_fd);
    opened.direct_fd = ::open(same.c_str(), (flags & ~O_NONBLOCK) | O_DIRECT);
    if (opened.direct_fd < 0 && errno == EMFILE) {
      const int error = errno;
      close(opened.buffered_fd);
      return fail_errno(error, "cannot open " + quote(path));
    }
    const auto alignment =
        opened.direct_fd < 0 ? std::nullopt : direct_alignment(opened.direct_fd, status.st_dev);
    if (alignment) {
      opened.alignment = *alignment;
    } else if (opened.direct_fd >= 0) {
      close(std::exchange(opened.direct_fd, -1));
    }
  }
  return std::unique_ptr<File>(new File(path, Bytes{static_cast<std::uint64_t>(status.st_size)},
                                        *node, opened, options.writable));
}

Status File::drop_page_cache() const {
  // Dirty pages are not dropped: write them first.
  if (writable_ && fdatasync(buffered_fd_) != 0) {
    return fail_errno(errno, "cannot write back " + quoted());
  }
  if (const int error = posix_fadvise(buffered_fd_, 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    return fail_errno(error, "cannot drop the page cache of " + quoted());
  }
  return {};
}

Result<Bytes> File::page_cache_residency() const {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present;
  std::uint64_t pages = 0;
  for (std::uint64_t offset = 0; offset < size().value; offset += kResidencyWindow) {
    const std::uint64_t bytes = std::min(kResidencyWindow, size().value - offset);
    // Mapping touches nothing: mincore looks into the page cache, not the page table.
    void* map =
        mmap(nullptr, bytes, PROT_READ, MAP_SHARED, buffered_fd_, static_cast<off_t>(offset));
    if (map == MAP_FAILED) return fail_errno(errno, "cannot map " + quoted());
    present.assign((bytes + page - 1) / page, 0);
    const int failed = mincore(map, bytes, present.data()) == 0 ? 0 : errno;
    munmap(map, bytes);
    if (failed != 0) return fail_errno(failed, "cannot ask for the pages of " + quoted());
    for (const unsigned char p : present) pages += p & 1U;
  }
  return Bytes{std::min(pages * page, size().value)};
}

}  // namespace headrace
