// SPDX-License-Identifier: Apache-2.0
// The kernel's hint faults, while a tier of another process needs them, and numa_balancing for
// those who set its other bits meanwhile. A file lock counts the holders; the kernel drops it
// however its holder ends. Thread-compatible.
#pragma once

#include <filesystem>
#include <string>

#include "headrace/result.h"
#include "host/files.h"
#include "host/settings/state_file.h"

namespace headrace {

inline constexpr const char* kNumaBalancing = "proc/sys/kernel/numa_balancing";

// Holds bit 1 of kernel.numa_balancing (hint faults on all nodes). Other bits are untouched, such
// as bit 2 of `headrace tier kernel`.
//
// If a holder set the bit, a file records that until the bit is cleared again. A killed holder
// leaves the file; the next take() or restore_hint_faults() then clears the bit. A bit that was set
// before stays set.
class HintFaults {
 public:
  // Whether to set the bit if it is clear, which affects all programs of the host.
  enum class Set { never, if_need_be };
  // Errors: absent: no such kernel feature, or the bit is clear and shall not be set; denied: no
  // permission.
  static Result<HintFaults> take(const std::filesystem::path& directory, Set set,
                                 const HostFiles& files = HostFiles());
  HintFaults(HintFaults&&) = default;
  HintFaults& operator=(HintFaults&&) = delete;
  // The last holder clears the bit, unless another program changed the setting meanwhile.
  ~HintFaults();

  // A text that says what was done.
  const std::string& note() const { return note_; }

 private:
  HintFaults(std::filesystem::path directory, const HostFiles& files, OwnDescriptor file,
             std::string note)
      : directory_(std::move(directory)),
        files_(files),
        file_(std::move(file)),
        note_(std::move(note)) {}
  std::filesystem::path directory_;
  HostFiles files_;
  OwnDescriptor file_;
  std::string note_;
};

// Restores the setting after killed holders; true: there was something to restore.
bool restore_hint_faults(const std::filesystem::path& directory,
                         const HostFiles& files = HostFiles());

// A setting as it is without hint faults that are held: numa_balancing without their bit, and every
// other file as it is. Errors: those of HostFiles::read.
Result<std::string> read_own_setting(const HostFiles& files, const std::string& name);
// Writes the setting. A bit that a living holder needs stays set; one that a killed holder left is
// cleared. Errors: those of HostFiles::write and open_locked().
Status write_own_setting(const HostFiles& files, const std::string& name, const std::string& value);

}  // namespace headrace
