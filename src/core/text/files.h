// SPDX-License-Identifier: Apache-2.0
// Whole files, read and written. Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// A profile of sixteen nodes with every experiment takes some MiB; a file of this size is none.
inline constexpr Bytes kLargestDocument = 64_MiB;

// All of a file; never waits for more to come. invalid: no regular file (a pipe, a device), or more
// than `largest`. io, denied, absent by errno.
Result<std::string> read_file(const std::filesystem::path& path, Bytes largest = kLargestDocument);

// The same of a file that a user names. invalid: also an empty one, before it is read, as those of
// /proc are: reading the kernel's log there takes it from those who wait for it. The same rule in
// Python: python/headrace/_files.py.
Result<std::string> read_document(const std::filesystem::path& path,
                                  Bytes largest = kLargestDocument);

// Lists of the CPUs of a large machine have some KiB.
inline constexpr Bytes kLongestLine = 64_KiB;

// The first line of a file, such as sysfs has by the thousand, and of that at most kLongestLine;
// "": none, or the file cannot be read.
std::string first_line(const std::filesystem::path& path);

// Replaces the file at once and durably: a reader sees the old one or the new one, also after a
// crash. A symbolic link stays, and its target is written, made if need be. What is no regular file
// (a pipe, a device), and a file whose directory takes no other or lets it not be replaced (a mount
// point), is written to as it is; the latter once it has room for the whole text. The same rules
// in Python: python/headrace/_files.py.
Status write_file_at_once(const std::filesystem::path& path, std::string_view text);

}  // namespace headrace
