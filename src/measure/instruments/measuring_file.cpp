// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/measuring_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/fail.h"
#include "headrace/clock.h"
#include "memory/memory.h"

namespace headrace::instruments {
namespace {

constexpr std::size_t kWriteBlock = 4 << 20;
// Bytes between two looks at the time of a file that goes through the page cache.
constexpr std::size_t kFlushed = 32 << 20;

Unexpected fail_too_slow(const File& file, std::uint64_t done, Nanoseconds most) {
  return fail(ErrorCode::unsupported,
              "a quarter of the budget ({:.3g} s) wrote {} of the {} that a measuring file needs; "
              "give a larger budget, or another directory",
              seconds(most), to_string(Bytes{done}), to_string(file.size()));
}

// A nameless file of kMeasuringFile bytes. It disappears with its last descriptor, unless the
// program is killed meanwhile.
Result<std::unique_ptr<File>> nameless_file(const Machine& machine,
                                            const std::filesystem::path& directory, bool direct) {
  std::string path = (directory / "headrace-measure-XXXXXX").string();
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) {
    return fail_errno(errno, fmt::format("cannot create a file in {}; give a directory that can be "
                                         "written to",
                                         directory.string()));
  }
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(kMeasuringFile.value));
  close(fd);
  if (error != 0) {
    unlink(path.c_str());
    return fail_errno(error, fmt::format("cannot reserve {} in {}; free some space or give another "
                                         "directory",
                                         to_string(kMeasuringFile), directory.string()));
  }
  auto file = File::open(machine, path, {.writable = true, .direct = direct});
  unlink(path.c_str());
  return file;
}

// Fills it with incompressible bytes. Then none of it is in the page cache.
Status fill(const File& file, std::optional<Nanoseconds> most) {
  // Whole pages, as writes past the page cache require.
  const auto block =
      MappedMemory::make(Bytes{kWriteBlock}, base_page(), base_page(), PROT_READ | PROT_WRITE);
  if (!block) return fail_errno(block.error(), "no memory to write from");
  Random random(1);
  fill_randomly({block->memory(), kWriteBlock}, random);
  const int fd = file.direct() ? file.direct_fd() : file.buffered_fd();
  const Nanoseconds start = system_clock().now();
  for (std::uint64_t at = 0; at < file.size().value;) {
    const std::uint64_t within = at % kWriteBlock;
    const ssize_t wrote =
        pwrite(fd, block->memory() + within, kWriteBlock - within, static_cast<off_t>(at));
    if (wrote <= 0) {
      return fail_errno(wrote == 0 ? ENOSPC : errno,
                        "cannot write the measuring file; free some space");
    }
    at += static_cast<std::uint64_t>(wrote);
    // The page cache takes all at once, and the device only when it is flushed.
    if (most && !file.direct() && at % kFlushed == 0) static_cast<void>(fdatasync(fd));
    if (most && system_clock().now() - start > *most) return fail_too_slow(file, at, *most);
  }
  if (fdatasync(fd) != 0) return fail_errno(errno, "cannot flush the measuring file");
  return file.drop_page_cache();
}

}  // namespace

void fill_randomly(std::span<std::byte> bytes, Random& random) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(bytes.size() - at, sizeof word));
  }
}

Result<const File*> MeasuringFile::get(std::optional<Nanoseconds> most) {
  if (!made_) made_ = make(most);
  if (!*made_) return Unexpected(made_->error());
  return (*made_)->get();
}

Result<std::unique_ptr<File>> MeasuringFile::make(std::optional<Nanoseconds> most) const {
  HEADRACE_TRY(auto file, nameless_file(machine_, directory_, direct_));
  if (direct_ && !file->direct()) {
    return fail(ErrorCode::unsupported, "the file system of {} has no direct I/O",
                directory_.string());
  }
  HEADRACE_TRY_STATUS(fill(*file, most));
  return file;
}

const Node* disk_behind(const Machine& machine, const std::filesystem::path& directory) {
  struct stat wanted{};
  if (stat(directory.c_str(), &wanted) != 0) return nullptr;
  for (const Node& node : machine.nodes) {
    struct stat own{};
    if (node.kind != NodeKind::storage || stat(node.path.c_str(), &own) != 0) continue;
    if (own.st_dev == wanted.st_dev) return &node;
  }
  return nullptr;
}

Status make_cold(const File& file) {
  HEADRACE_TRY_STATUS(file.drop_page_cache());
  HEADRACE_TRY(const Bytes kept, file.page_cache_residency());
  if (kept == 0_B) return {};
  return fail(ErrorCode::unsupported,
              "the file system keeps {} of the file in memory; measure in another directory",
              to_string(kept));
}

}  // namespace headrace::instruments
