// SPDX-License-Identifier: Apache-2.0
// A file or block device as an object: its extents can be moved and cached.
//
// Opened with O_DIRECT, past the page cache, where the file system allows it, so reads return the
// device's bytes. Exception: reads into GPU memory may take bytes from the page cache where it
// holds the file's pages. The size is read at opening. If the file shrinks later, the missing part
// gives io errors, never stale or zero bytes. If it grows, update_size() makes the new part usable.
// Two Files of one path are two objects: a cache keeps copies of each, and Cache::invalidate() of
// one drops none of the other. A child of fork() may also use a File. Thread-safe.
//
// A block device opened writable belongs to that File alone (O_EXCL): it cannot be mounted, or
// opened writable as another File. Programs that open it without O_EXCL can still write to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/object.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

struct FileOptions {
  bool writable = false;
  // Past the page cache. If the file system refuses, buffered (see File::direct()).
  bool direct = true;
};

// The device's alignment of requests past the page cache: `offset` for offsets and lengths,
// `memory` for addresses. Powers of two.
struct DirectAlignment {
  std::uint32_t memory = 4096;
  std::uint32_t offset = 4096;
};

// The state of a file, for its users who cache it: equal versions mean that nobody wrote to it.
// Only for the same File; a file that another one replaced under its name keeps its version.
// Times have the resolution of the file system's clock, 4 ms on most kernels before Linux 6.13: a
// second change within one tick may leave the version as it is. The kernel's own counter of changes
// (STATX_CHANGE_COOKIE) is not visible to programs.
struct FileVersion {
  std::uint64_t inode = 0;
  Bytes size;
  Nanoseconds modified{0};  // st_mtim and st_ctim, since 1970
  Nanoseconds changed{0};
  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

// With UserSource the only kind of Object that has no memory() and is on a storage node.
class File final : public Object {
 public:
  ~File();

  // Opens a file or block device. Its node is the storage device of the path, or the machine's
  // first storage node if the machine does not know that device.
  // Errors: absent: also a block device of 0 bytes; denied: also a block device in use, if
  // `writable`; io; invalid: another kind of file, an empty name; unsupported: the machine has no
  // storage node.
  static Result<std::unique_ptr<File>> open(const Machine& machine,
                                            const std::filesystem::path& path,
                                            FileOptions options = {});

  const std::filesystem::path& path() const { return path_; }
  bool direct() const { return direct_fd_ >= 0; }
  // Reads the file's size again and returns size(). If the file has grown, size() grows, and
  // extents of the new part can be moved and cached. To write behind the end, lengthen the file
  // first (ftruncate, fallocate). Errors: io.
  Result<Bytes> update_size();
  // The version now. If it differs from an earlier one, someone wrote to the file: invalidate() its
  // copies (cache.h). Write-backs of a cache change it too: read it again after sync(). Read it
  // before the first access, so that no change between both is missed. Errors: io; unsupported: a
  // block device, which has no times of changes.
  Result<FileVersion> version() const;
  // Makes durable what was written to the file, by anyone (fdatasync). Errors: io. Then the kernel
  // may have dropped bytes that it could not write, and a repetition may succeed without them.
  Status sync() const;
  // Drops the file's clean pages from the page cache (posix_fadvise), for a cold start.
  Status drop_page_cache() const;
  // Bytes of the file in the page cache now (mincore): proves a cold start.
  // Errors: denied: this process neither owns nor may write the file, so the kernel does not say.
  Result<Bytes> page_cache_residency() const;
  // The same for `length` bytes from `offset`, which is a multiple of the page size; what lies
  // behind the file's end counts as absent.
  Result<Bytes> page_cache_residency(std::uint64_t offset, Bytes length) const;

  // Descriptors for backends: past the page cache (-1 if refused), and through it.
  int direct_fd() const { return direct_fd_; }
  int buffered_fd() const { return buffered_fd_; }
  bool writable() const { return writable_; }
  // As reported by the kernel at opening (statx), else the device's logical block, else 4096.
  DirectAlignment alignment() const { return alignment_; }
  // The path in quotes on one line, with control characters escaped, for messages.
  std::string quoted() const;

 private:
  struct Opened;
  bool residency_is_told() const;
  File(std::filesystem::path path, Bytes size, NodeId node, Opened&& opened, bool writable);

  const std::filesystem::path path_;
  const int direct_fd_;
  const int buffered_fd_;
  const DirectAlignment alignment_;
  const bool writable_;
};

}  // namespace HEADRACE_API headrace
