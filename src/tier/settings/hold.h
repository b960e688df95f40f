// SPDX-License-Identifier: Apache-2.0
// Turns on the kernel's hint faults while a tier of another process needs them. A file lock counts
// the holders; the kernel drops it however its holder ends. Thread-compatible.
#pragma once

#include <filesystem>
#include <string>

#include "headrace/result.h"
#include "tier/kernel.h"
#include "tier/settings/state_file.h"

namespace headrace {

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
  // `setting`: the kernel's file. Errors: absent: no such kernel feature, or the bit is clear and
  // shall not be set; denied: no permission.
  static Result<HintFaults> take(
      const std::filesystem::path& directory, Set set,
      const std::filesystem::path& setting = "/proc/sys/kernel/numa_balancing");
  HintFaults(HintFaults&&) = default;
  HintFaults& operator=(HintFaults&&) = delete;
  // The last holder clears the bit, unless another program changed the setting meanwhile.
  ~HintFaults();

  // A text that says what was done.
  const std::string& note() const { return note_; }

 private:
  HintFaults(std::filesystem::path directory, std::filesystem::path setting, OwnDescriptor file,
             std::string note)
      : directory_(std::move(directory)),
        setting_(std::move(setting)),
        file_(std::move(file)),
        note_(std::move(note)) {}
  std::filesystem::path directory_;
  std::filesystem::path setting_;
  OwnDescriptor file_;
  std::string note_;
};

// Restores the setting after killed holders; true: there was something to restore.
bool restore_hint_faults(const std::filesystem::path& directory,
                         const std::filesystem::path& setting = "/proc/sys/kernel/numa_balancing");

}  // namespace headrace
