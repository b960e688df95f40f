// SPDX-License-Identifier: Apache-2.0
// The file that experiments on a disk read and write. Single-thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "headrace/file.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace::instruments {

inline constexpr Bytes kMeasuringFile = 256_MiB;

// A nameless file of kMeasuringFile bytes in the directory. It disappears with its last descriptor,
// unless the program is killed while making it. `direct`: past the page cache where possible.
// Errors: denied, exhausted, io; absent: no such directory.
Result<std::unique_ptr<File>> measuring_file(const Machine& machine,
                                             const std::filesystem::path& directory,
                                             bool direct = true);

// Fills it with incompressible bytes and returns the rate in B/s, including the flush. Then none of
// it is in the page cache.
Result<double> fill(const File& file);

// Drops the file from the page cache, since a cached read is one of memory. Errors: unsupported:
// the file system keeps it there.
Status make_cold(const File& file);

// The node of the disk behind a directory; nullptr: the machine was discovered without it.
const Node* disk_behind(const Machine& machine, const std::filesystem::path& directory);

// A filled measuring file, made at the first get().
class MeasuringFile {
 public:
  MeasuringFile(const Machine& machine, std::filesystem::path directory, bool direct)
      : machine_(machine), directory_(std::move(directory)), direct_(direct) {}

  // As measuring_file, with the same answer each time. Errors: also unsupported: `direct`, but the
  // file system has no direct I/O.
  Result<const File*> get();

 private:
  const Machine& machine_;
  const std::filesystem::path directory_;
  const bool direct_;
  Result<std::unique_ptr<File>> make() const;

  std::optional<Result<std::unique_ptr<File>>> made_;
};

}  // namespace headrace::instruments
