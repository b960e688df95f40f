// Whole files, read and written. Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "headrace/result.h"

namespace headrace {

// invalid: no regular file, or larger than any profile. io, denied, absent by errno.
Result<std::string> read_file(const std::filesystem::path& path);

// Replaces the file at once and durably: a reader sees the old one or the new one, also after a
// crash. A symbolic link is followed; what is no regular file (a pipe) is written to as it is.
Status write_file_at_once(const std::filesystem::path& path, std::string_view text);

}  // namespace headrace
