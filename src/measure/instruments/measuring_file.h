// SPDX-License-Identifier: Apache-2.0
// The file that experiments on a disk read and write. Single-thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "headrace/file.h"
#include "headrace/machine.h"
#include "headrace/random.h"
#include "headrace/result.h"

namespace headrace::instruments {

inline constexpr Bytes kMeasuringFile = 256_MiB;

// Fills memory with bytes that do not compress: zeros would be written faster if the device or the
// file system compresses.
void fill_randomly(std::span<std::byte> bytes, Random& random);

// Drops the file from the page cache, since a cached read is one of memory. Errors: unsupported:
// the file system keeps it there.
Status make_cold(const File& file);

// The node of the disk behind a directory; nullptr: the machine was discovered without it.
const Node* disk_behind(const Machine& machine, const std::filesystem::path& directory);

// A nameless file of kMeasuringFile incompressible bytes in the directory, made at the first get().
// It disappears with its last descriptor. `direct`: past the page cache.
class MeasuringFile {
 public:
  MeasuringFile(const Machine& machine, std::filesystem::path directory, bool direct)
      : machine_(machine), directory_(std::move(directory)), direct_(direct) {}

  // The same answer each time. None of the new file is in the page cache. Errors: denied,
  // exhausted, io; absent: no such directory; unsupported: `direct`, but the file system has no
  // direct I/O, or filling the file took longer than `most`.
  Result<const File*> get(std::optional<Nanoseconds> most = {});

 private:
  const Machine& machine_;
  const std::filesystem::path directory_;
  const bool direct_;
  Result<std::unique_ptr<File>> make(std::optional<Nanoseconds> most) const;

  std::optional<Result<std::unique_ptr<File>>> made_;
};

}  // namespace headrace::instruments
