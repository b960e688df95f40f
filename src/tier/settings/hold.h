// SPDX-License-Identifier: Apache-2.0
// What tiering of other processes holds of the machine, and gives back: the kernel's hint faults,
// by a lock on a file, which the kernel lets go when its holder ends, however it ends.
// Thread-compatible.
#pragma once

#include <filesystem>
#include <string>

#include "headrace/result.h"
#include "tier/kernel.h"
#include "tier/settings/state_file.h"

namespace headrace {

// Bit 1 of kernel.numa_balancing, hint faults on all nodes, set for as long as anybody holds it
// here; the other bits are others', such as `headrace tier kernel`'s 2. That it was not set stands
// in a file until it is put back; a holder that was killed leaves the file, and the next that
// takes, or restore_hint_faults(), puts it back. One who finds it set leaves it set.
class HintFaults {
 public:
  // Whether the bit is set where it is not: for all programs of the host.
  enum class Set { never, if_need_be };
  // absent: a kernel without, or the bit is not set and is not to be; denied: not as this user.
  // `setting`: the file of the kernel.
  static Result<HintFaults> take(
      const std::filesystem::path& directory, Set set,
      const std::filesystem::path& setting = "/proc/sys/kernel/numa_balancing");
  HintFaults(HintFaults&&) = default;
  HintFaults& operator=(HintFaults&&) = delete;
  // The last holder takes back the bit, and leaves what others have set meanwhile.
  ~HintFaults();

  // What was done, in words.
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

// Puts back what killed holders left; true: there was something.
bool restore_hint_faults(const std::filesystem::path& directory,
                         const std::filesystem::path& setting = "/proc/sys/kernel/numa_balancing");

}  // namespace headrace
