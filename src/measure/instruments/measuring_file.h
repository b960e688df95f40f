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

// A file of kMeasuringFile in the directory, without a name: it is gone when the last descriptor
// is (unless the program is killed while it is made). Past the page cache where `direct` and
// possible. denied, exhausted, io; absent: no such directory.
Result<std::unique_ptr<File>> measuring_file(const Machine& machine,
                                             const std::filesystem::path& directory,
                                             bool direct = true);

// Fills it with bytes no device can compress and returns the rate in B/s, flushing included.
// Nothing of it is in the page cache then. unsupported: it takes longer than `most`.
Result<double> fill(const File& file, std::optional<Nanoseconds> most = {});

// Nothing of the file may be in the page cache, or a read through it is one of memory. unsupported:
// the file system keeps it there.
Status make_cold(const File& file);

// The node of the disk behind a directory; nullptr: the machine was discovered without it.
const Node* disk_behind(const Machine& machine, const std::filesystem::path& directory);

// A filled one, made when it is first asked for.
class MeasuringFile {
 public:
  MeasuringFile(const Machine& machine, std::filesystem::path directory, bool direct)
      : machine_(machine), directory_(std::move(directory)), direct_(direct) {}

  // As measuring_file, and the same answer each time. unsupported: the file system has no direct
  // I/O, which was asked for, or filling the file took longer than `most`.
  Result<const File*> get(std::optional<Nanoseconds> most = {});

 private:
  const Machine& machine_;
  const std::filesystem::path directory_;
  const bool direct_;
  Result<std::unique_ptr<File>> make(std::optional<Nanoseconds> most) const;

  std::optional<Result<std::unique_ptr<File>>> made_;
};

}  // namespace headrace::instruments
