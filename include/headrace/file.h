// SPDX-License-Identifier: Apache-2.0
// A file as an object: its extents can be moved and cached.
//
// Opened past the page cache (O_DIRECT) where the file system allows it, so that what is read is
// what the device delivers. The size is taken at opening; a file that shrinks later gives io errors
// on the missing part, never stale or zero bytes; one that grows is longer after update_size(). Two
// Files of one path are two objects: a cache keeps copies of each, and Cache::invalidate() of one
// drops none of the other's. A child of fork() may use it too. Thread-safe.
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
  // Past the page cache; where the file system refuses, buffered (File::direct() tells).
  bool direct = true;
};

// What the device asks of a request past the page cache: offsets and lengths are multiples of
// `offset`, memory addresses of `memory`. Powers of two.
struct DirectAlignment {
  std::uint32_t memory = 4096;
  std::uint32_t offset = 4096;
};

// The only kind of Object without memory() that lives on a storage node.
class File final : public Object {
 public:
  ~File();

  // absent, denied, invalid (not a regular file, an empty name), io. `machine` gives the node: the
  // storage device the path is on, or the first storage node when that device is unknown to the
  // machine. unsupported: the machine has no storage node.
  static Result<std::unique_ptr<File>> open(const Machine& machine,
                                            const std::filesystem::path& path,
                                            FileOptions options = {});

  const std::filesystem::path& path() const { return path_; }
  bool direct() const { return direct_fd_ >= 0; }
  // Asks for the file's size now. If it has grown, size() is that from here on, and extents of the
  // new part can be moved and cached. Returns size(). To write behind the end, lengthen the file
  // first (ftruncate, fallocate). Errors: io.
  Result<Bytes> update_size();
  // Drops the file's clean pages from the page cache (posix_fadvise), as a cold start needs.
  Status drop_page_cache() const;
  // Bytes of the file in the page cache now (mincore): the proof of a cold start. denied: not our
  // file and not ours to write, so the kernel does not say.
  Result<Bytes> page_cache_residency() const;

  // Descriptors for backends: past the page cache (-1 if refused), and through it.
  int direct_fd() const { return direct_fd_; }
  int buffered_fd() const { return buffered_fd_; }
  bool writable() const { return writable_; }
  // Asked of the kernel at opening (statx), else the device's logical block, else 4096.
  DirectAlignment alignment() const { return alignment_; }
  // The path in quotes on one line, control characters escaped: for messages.
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
