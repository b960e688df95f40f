// SPDX-License-Identifier: Apache-2.0
#include "host/settings/hint_faults.h"

#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "host/nodes.h"

namespace headrace {
namespace {

// NUMA_BALANCING_NORMAL in kernel.numa_balancing: removes entries on all nodes. Without it, and
// with NUMA_BALANCING_MEMORY_TIERING (2), only on slow nodes.
constexpr unsigned kOnAllNodes = 1;

// Excludes other processes between two dependent steps; nothing may wait while it is held.
Result<OwnDescriptor> alone(const std::filesystem::path& directory, const HostFiles& files) {
  return open_locked(directory / "hint-faults.lock", LOCK_EX, files);
}

std::optional<unsigned> mode_in(const std::string& text) { return number_after(text, ""); }

// nullopt: the kernel has no such setting, or it is not a number.
std::optional<unsigned> mode_of(const HostFiles& files) {
  return mode_in(files.text(kNumaBalancing));
}

// Whether a holder recorded that it set the bit.
bool is_recorded(const std::filesystem::path& directory) {
  std::error_code error;
  const auto size = std::filesystem::file_size(directory / "hint-faults", error);
  return !error && size > 0;
}

// Clears what the file records as set; other bits stay. What cannot be restored or read stays
// recorded. Requires: the only holder.
bool put_back(const OwnDescriptor& file, const HostFiles& files) {
  if (text_of(file).empty()) return false;
  const auto mode = mode_of(files);
  if (!mode) return false;
  if ((*mode & kOnAllNodes) != 0 &&
      !files.write(kNumaBalancing, std::to_string(*mode & ~kOnAllNodes))) {
    return false;
  }
  return ::ftruncate(file.get(), 0) == 0;
}

}  // namespace

Result<HintFaults> HintFaults::take(const std::filesystem::path& directory, Set set,
                                    const HostFiles& files) {
  if (files.text(kNumaBalancing).empty()) {
    return fail(ErrorCode::absent, "the kernel has no hint faults (CONFIG_NUMA_BALANCING)");
  }
  HEADRACE_TRY(const OwnDescriptor excluded, alone(directory, files));
  HEADRACE_TRY(OwnDescriptor file, open_locked(directory / "hint-faults", LOCK_SH, files));
  std::string note = "kernel.numa_balancing is on already and stays";
  if (only_holder(file)) {
    put_back(file, files);
    if (const auto mode = mode_of(files); mode && (*mode & kOnAllNodes) == 0) {
      if (set == Set::never) {
        return fail(ErrorCode::absent,
                    "kernel.numa_balancing is off; ask for hint faults to set it, for the whole "
                    "host");
      }
      // Records the change before making it.
      const std::string was = std::to_string(*mode);
      HEADRACE_TRY_STATUS(headrace::note(file, was));
      if (!files.write(kNumaBalancing, std::to_string(*mode | kOnAllNodes))) {
        const bool noted = ::ftruncate(file.get(), 0) != 0;
        return fail(ErrorCode::denied, "kernel.numa_balancing may not be set here; it takes root{}",
                    noted ? fmt::format("; delete {}, which says that it was set",
                                        (directory / "hint-faults").string())
                          : "");
      }
      note =
          fmt::format("kernel.numa_balancing is on for as long as this runs, and then {} as it was",
                      *mode == 0 ? "off" : was);
    }
  }
  // flock(2) drops the present lock when it waits for a stronger one.
  if (::flock(file.get(), LOCK_SH) != 0) return fail_errno(errno, "cannot lock");
  return HintFaults(directory, files, std::move(file), std::move(note));
}

HintFaults::~HintFaults() {
  if (file_.get() < 0) return;
  const auto excluded = alone(directory_, files_);
  if (excluded && only_holder(file_)) put_back(file_, files_);
}

bool restore_hint_faults(const std::filesystem::path& directory, const HostFiles& files) {
  const auto excluded = alone(directory, files);
  if (!excluded) return false;
  const auto file = open_locked(directory / "hint-faults", LOCK_EX | LOCK_NB);
  return file && put_back(*file, files);
}

Result<std::string> read_own_setting(const HostFiles& files, const std::string& name) {
  if (name != kNumaBalancing) return files.read(name);
  // A taker of the bit records it first, and a giver forgets it last.
  const auto directory = files.path(kStateFolder);
  const bool was_recorded = is_recorded(directory);
  HEADRACE_TRY(const std::string text, files.read(name));
  const auto mode = mode_in(text);
  if (!mode || !(was_recorded || is_recorded(directory))) return text;
  return std::to_string(*mode & ~kOnAllNodes);
}

Status write_own_setting(const HostFiles& files, const std::string& name,
                         const std::string& value) {
  const auto mode = mode_in(value);
  if (name != kNumaBalancing || !mode) return files.write(name, value);
  const auto directory = files.path(kStateFolder);
  HEADRACE_TRY(const OwnDescriptor excluded, alone(directory, files));
  const auto file = open_locked(directory / "hint-faults", LOCK_EX | LOCK_NB);
  if (!file && file.error().code != ErrorCode::exhausted) return Unexpected(file.error());
  const bool is_held = !file && is_recorded(directory);
  HEADRACE_TRY_STATUS(files.write(name, is_held ? std::to_string(*mode | kOnAllNodes) : value));
  // If this fails, the next holder finds the bit cleared already.
  if (file) (void)!::ftruncate(file->get(), 0);
  return {};
}

}  // namespace headrace
