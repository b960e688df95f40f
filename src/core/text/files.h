// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole files. Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// A profile of 16 nodes with all experiments is some MiB; a file of this size is not a document.
inline constexpr Bytes kLargestDocument = 64_MiB;

// Reads all of a file, without waiting for more bytes.
// Errors: invalid: not a regular file (a pipe, a device), or larger than `largest`; and io, denied,
// absent by errno.
Result<std::string> read_file(const std::filesystem::path& path, Bytes largest = kLargestDocument);

// The same for a file that a user names. Errors: invalid: also an empty file, before it is read.
// Files of /proc have size 0, and reading the kernel's log there takes messages from other readers.
// Python has the same rule: python/headrace/_files.py.
Result<std::string> read_document(const std::filesystem::path& path,
                                  Bytes largest = kLargestDocument);

// CPU lists of a large machine are some KiB.
inline constexpr Bytes kLongestLine = 64_KiB;

// The first line of a file, for sysfs with its thousands of files, cut at kLongestLine. "": no
// line, or the file cannot be read.
std::string first_line(const std::filesystem::path& path);

// Replaces a file atomically and durably: a reader sees the old text or the new one, also after a
// crash. A symbolic link stays, and its target is written, or created.
//
// Two kinds of target are written in place: one that is not a regular file (a pipe, a device), and
// a file that its directory does not let it replace (a mount point, no new files). The latter is
// written only after space for the whole text is allocated. Python has the same rules:
// python/headrace/_files.py.
Status write_file_at_once(const std::filesystem::path& path, std::string_view text);

}  // namespace headrace
