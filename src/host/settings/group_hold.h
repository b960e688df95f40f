// SPDX-License-Identifier: Apache-2.0
// Makes the kernel keep a process within a budget, by the limit of a memory cgroup of its own:
// memory.high of version 2, memory.limit_in_bytes of version 1. Thread-compatible.
//
// A limit counts all memory of the group; a budget counts only memory that a tier moves. The rest
// (file pages, page tables, locked memory, other processes) is added to the limit each time.
// Between two updates the program may use the space of file pages, which the kernel reclaims first.
//
// The previous settings are kept in a file, so that the next user restores those of a killed one. A
// held version 1 group does not kill when memory runs out:
// - a fault in user mode waits for memory;
// - a system call that needs memory fails, as read(2) into fresh memory with EFAULT.
//
// The holder therefore lifts the limit well before swap is full. If the holder is stopped or
// killed, its guardian lifts it (guardian.h).
#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fork.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "host/settings/guardian.h"
#include "host/settings/state_file.h"

namespace headrace {

class GroupHold {
 public:
  // Takes a group that only this process is in, or whose name shows that it was made for it.
  // Changes nothing yet. Files are relative to `root`. Errors: unsupported: no memory cgroups, or
  // the root cgroup; denied: a shared group, one that may not swap, or no permission; exhausted:
  // the group is held already.
  static Result<GroupHold> take(int pid, const std::filesystem::path& directory,
                                const std::filesystem::path& root = "/");
  GroupHold(GroupHold&&) = default;
  GroupHold& operator=(GroupHold&&) = delete;
  // Restores settings that still have our value; if that fails, the guardian retries.
  ~GroupHold();

  // Sets the limit to `budget`, or to the present use if that is larger: the group approaches its
  // budget and is not forced down. nullopt: the limit from before the hold. Call it several times a
  // second: without a call for Guardian::kMostSilence the limit is lifted until the next one.
  // Errors: denied: another program has changed the limit, which stays, or the guardian was killed;
  // absent: the group is gone.
  Status keep(std::optional<Bytes> budget);

  // The group and its settings, as text.
  const std::string& note() const { return note_; }
  // The process that lifts the limit when this one cannot.
  int guardian() const { return guardian_->pid(); }

 private:
  struct Setting {
    std::string file;
    std::string before;
    std::string now;  // as written last
  };
  GroupHold(int pid, std::filesystem::path group, std::filesystem::path root,
            std::filesystem::path state, OwnDescriptor file, std::vector<Setting> settings,
            std::unique_ptr<Guardian> guardian);
  Status set(Setting& setting, const std::string& value);
  void note_lifts();

  const Origin origin_;
  const int pid_;
  const std::filesystem::path group_;
  const std::filesystem::path root_;
  const std::filesystem::path state_;
  OwnDescriptor file_;
  std::vector<Setting> settings_;  // in the order of setting; the limit is last
  std::unique_ptr<Guardian> guardian_;
  std::string note_;
  // The budget or, if that is more, the least movable memory since the hold began.
  Bytes most_{std::numeric_limits<std::uint64_t>::max()};
};

// Restores settings of killed holders; true: there were any.
bool restore_groups(const std::filesystem::path& directory);

}  // namespace headrace
