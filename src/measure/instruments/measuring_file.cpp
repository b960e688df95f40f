// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/measuring_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/random.h"

namespace headrace::instruments {
namespace {

constexpr std::size_t kWriteBlock = 4 << 20;

// Whole pages, as writes past the page cache require.
class Pages {
 public:
  Pages()
      : memory_(mmap(nullptr, kWriteBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0)) {}
  ~Pages() {
    if (memory_ != MAP_FAILED) munmap(memory_, kWriteBlock);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(memory_), memory_ == MAP_FAILED ? 0 : kWriteBlock};
  }

 private:
  void* const memory_;
};

}  // namespace

Result<std::unique_ptr<File>> measuring_file(const Machine& machine,
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

Result<double> fill(const File& file) {
  const Pages block;
  if (block.bytes().empty()) return fail_errno(errno, "no memory to write from");
  Random random(1);
  for (std::byte& b : block.bytes()) b = static_cast<std::byte>(random());
  const int fd = file.direct() ? file.direct_fd() : file.buffered_fd();
  const Nanoseconds start = system_clock().now();
  for (std::uint64_t at = 0; at < file.size().value;) {
    const std::uint64_t within = at % kWriteBlock;
    const ssize_t wrote =
        pwrite(fd, block.bytes().data() + within, kWriteBlock - within, static_cast<off_t>(at));
    if (wrote <= 0) {
      return fail_errno(wrote == 0 ? ENOSPC : errno,
                        "cannot write the measuring file; free some space");
    }
    at += static_cast<std::uint64_t>(wrote);
  }
  if (fdatasync(fd) != 0) return fail_errno(errno, "cannot flush the measuring file");
  const Nanoseconds took = system_clock().now() - start;
  HEADRACE_TRY_STATUS(file.drop_page_cache());
  return (file.size() / std::max(took, Nanoseconds{1})).value;
}

Result<const File*> MeasuringFile::get() {
  if (!made_) made_ = make();
  if (!*made_) return Unexpected(made_->error());
  return (*made_)->get();
}

Result<std::unique_ptr<File>> MeasuringFile::make() const {
  HEADRACE_TRY(auto file, measuring_file(machine_, directory_, direct_));
  if (direct_ && !file->direct()) {
    return fail(ErrorCode::unsupported, "the file system of {} has no direct I/O",
                directory_.string());
  }
  HEADRACE_TRY_STATUS(fill(*file));
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
