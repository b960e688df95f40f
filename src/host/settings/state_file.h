// SPDX-License-Identifier: Apache-2.0
// Files that record which kernel settings to restore. The setter of a value locks its file; the
// kernel drops the lock however the setter ends. Thread-compatible.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/own_files.h"
#include "headrace/result.h"
#include "host/files.h"

namespace headrace {

// The folder of root's state files, a name of HostFiles.
inline constexpr const char* kStateFolder = "run/headrace";

// /run/headrace where it can be made, else $XDG_RUNTIME_DIR/headrace; created if missing. Errors:
// denied: neither can be made.
Result<std::filesystem::path> state_directory();

// Opens a state file, created if missing, and locks it as flock(2) does with `how`. Errors:
// - exhausted: with LOCK_NB, another process has the lock;
// - timed_out: without LOCK_NB, another process had it for all of lock_bound, as a stopped one
// does;
// - denied: the file belongs to another user, who may have written anything. Root trusts only files
//   of root, since it writes to the paths they name.
// `files` pauses between two tries.
Result<OwnDescriptor> open_locked(const std::filesystem::path& path, int how,
                                  const HostFiles& files = HostFiles());

// Whether no other process has the lock; then this one has it exclusively.
bool only_holder(const OwnDescriptor& file);

// The first 64 KiB of the file; "": empty.
std::string text_of(const OwnDescriptor& file);
// Replaces the text, and syncs it to disk. At any time the file holds the old or the new text; the
// end of the old one may follow the new one.
Status note(const OwnDescriptor& file, std::string_view text);

}  // namespace headrace
