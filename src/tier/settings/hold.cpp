// SPDX-License-Identifier: Apache-2.0
#include "tier/settings/hold.h"

#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"

namespace headrace {
namespace {

// NUMA_BALANCING_NORMAL in kernel.numa_balancing: removes entries on all nodes. Without it, and
// with NUMA_BALANCING_MEMORY_TIERING (2), only on slow nodes.
constexpr unsigned kOnAllNodes = 1;

// Excludes other processes between two dependent steps; nothing may wait while it is held.
Result<OwnDescriptor> alone(const std::filesystem::path& directory) {
  return open_locked(directory / "hint-faults.lock", LOCK_EX);
}

// nullopt: the kernel has no such setting, or it is not a number.
std::optional<unsigned> mode_of(const std::filesystem::path& setting) {
  const std::string text = first_line(setting);
  unsigned mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return mode;
}

// Clears what the file records as set; other bits stay. What cannot be restored or read stays
// recorded. Requires: the only holder.
bool put_back(const OwnDescriptor& file, const std::filesystem::path& setting) {
  if (text_of(file).empty()) return false;
  const auto mode = mode_of(setting);
  if (!mode) return false;
  if ((*mode & kOnAllNodes) != 0 && !write_setting(setting, std::to_string(*mode & ~kOnAllNodes))) {
    return false;
  }
  return ::ftruncate(file.get(), 0) == 0;
}

}  // namespace

Result<HintFaults> HintFaults::take(const std::filesystem::path& directory, Set set,
                                    const std::filesystem::path& setting) {
  if (first_line(setting).empty()) {
    return fail(ErrorCode::absent, "the kernel has no hint faults (CONFIG_NUMA_BALANCING)");
  }
  HEADRACE_TRY(const OwnDescriptor excluded, alone(directory));
  HEADRACE_TRY(OwnDescriptor file, open_locked(directory / "hint-faults", LOCK_SH));
  std::string note = "kernel.numa_balancing is on already and stays";
  if (only_holder(file)) {
    put_back(file, setting);
    if (const auto mode = mode_of(setting); mode && (*mode & kOnAllNodes) == 0) {
      if (set == Set::never) {
        return fail(ErrorCode::absent,
                    "kernel.numa_balancing is off; ask for hint faults to set it, for the whole "
                    "host");
      }
      // Records the change before making it.
      const std::string was = std::to_string(*mode);
      HEADRACE_TRY_STATUS(headrace::note(file, was));
      if (!write_setting(setting, std::to_string(*mode | kOnAllNodes))) {
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
  return HintFaults(directory, setting, std::move(file), std::move(note));
}

HintFaults::~HintFaults() {
  if (file_.get() < 0) return;
  const auto excluded = alone(directory_);
  if (excluded && only_holder(file_)) put_back(file_, setting_);
}

bool restore_hint_faults(const std::filesystem::path& directory,
                         const std::filesystem::path& setting) {
  const auto excluded = alone(directory);
  if (!excluded) return false;
  const auto file = open_locked(directory / "hint-faults", LOCK_EX | LOCK_NB);
  return file && put_back(*file, setting);
}

}  // namespace headrace
