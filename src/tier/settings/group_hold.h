// SPDX-License-Identifier: Apache-2.0
// A process that the kernel itself keeps within a budget, by the limit of the memory cgroup that it
// is alone in: memory.high of version 2, memory.limit_in_bytes of version 1. Thread-compatible.
//
// A limit counts all that the group has, a budget only memory that a tier moves: what there is
// besides (file pages, page tables, what is locked or of other processes) is added to it each time.
// Until then the program may take the room of what the kernel gives up first: file pages.
// What was there before stands in a file until it is put back, so that the next who begins puts
// back what a killed one left. In version 1 the group does not kill for want of memory meanwhile:
// a fault in user mode waits until there is some; a system call that needs some fails, as read(2)
// into fresh memory with EFAULT. So the holder lifts the limit well before swap is full. If it is
// stopped or killed, its guardian lifts it (guardian.h).
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
#include "tier/settings/guardian.h"
#include "tier/settings/state_file.h"

namespace headrace {

class GroupHold {
 public:
  // Takes a group that it is alone in, or whose name tells that it was made for it.
  // Changes nothing yet. unsupported: a kernel without memory cgroups, or the root of them; denied:
  // a group that it shares, that may not swap, or that may not be changed; exhausted: a group that
  // is held already. Files are those below `root`.
  static Result<GroupHold> take(int pid, const std::filesystem::path& directory,
                                const std::filesystem::path& root = "/");
  GroupHold(GroupHold&&) = default;
  GroupHold& operator=(GroupHold&&) = delete;
  // Puts back what is as it was written here; where that fails, the guardian tries it again.
  ~GroupHold();

  // Lets it have so much from now on, or what it has by now where that is more, so that a budget is
  // come down to and not forced; nothing: as before it was held. To be called some times a second:
  // a limit is lifted after Guardian::kMostSilence without a call, and set again by the next one.
  // denied: somebody else has set a limit meanwhile, which stays, or the guardian has been killed;
  // absent: the group has gone.
  Status keep(std::optional<Bytes> budget);

  // The group, and what is set.
  const std::string& note() const { return note_; }
  // The process that lifts the limit where this one cannot.
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
  std::vector<Setting> settings_;  // in the order in which they are set; the limit is the last
  std::unique_ptr<Guardian> guardian_;
  std::string note_;
  Bytes most_{std::numeric_limits<std::uint64_t>::max()};  // that it had since it is held
};

// Puts back what killed holders left; true: there was something.
bool restore_groups(const std::filesystem::path& directory);

}  // namespace headrace
