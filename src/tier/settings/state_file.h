// SPDX-License-Identifier: Apache-2.0
// Files that say what of the machine is to be put back, and the settings of the kernel that they
// are about. A file is locked by who put the setting there; the kernel drops the lock with its
// holder, however that ends. Thread-compatible.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "headrace/result.h"
#include "tier/kernel.h"

namespace headrace {

// /run/headrace where that can be made, else $XDG_RUNTIME_DIR/headrace; made. denied: neither.
Result<std::filesystem::path> state_directory();

// Opens a file of ours, makes it if need be, and locks it as flock(2) does. exhausted: with
// LOCK_NB, somebody else has it locked; timed_out: without, for all of `patience`, as one does who
// was stopped meanwhile; denied: it belongs to another user, who may say anything: root, who would
// write what it says to where it says, takes nobody's word but root's.
Result<OwnDescriptor> open_locked(const std::filesystem::path& path, int how,
                                  std::chrono::milliseconds patience = std::chrono::seconds{10});

// Whether nobody else has it locked, so that it is locked for oneself now.
bool only_holder(const OwnDescriptor& file);

// What the file says, its first 64 KiB; "": nothing.
std::string text_of(const OwnDescriptor& file);
// Replaces it; on return it is on the disk, if there were one. The old or the new text is there at
// any time; behind the new one may be the end of the old.
Status note(const OwnDescriptor& file, std::string_view text);

// The text of a setting without the end of its last line. absent: there is none; denied: not as
// this user; exhausted: it is busy, as DAMON's are while somebody reads another of them.
Result<std::string> read_setting(const std::filesystem::path& setting);
// Tells the kernel in one call; its reason where it does not take it, exhausted: it is busy.
Status write_setting(const std::filesystem::path& setting, std::string_view value);

}  // namespace headrace
