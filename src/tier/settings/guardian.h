// SPDX-License-Identifier: Apache-2.0
// A child process that puts the limits of its parent back when the parent is silent. A memory limit
// is safe only while its setter runs, and that may be stopped (SIGSTOP, Ctrl-Z), killed, or starved
// of CPU time. Why a process:
// docs/design/tier/guardian.md.
//
// The parent starts a guardian with the files of its limits and what they said, announces each
// value by expect() before it writes it, and calls beat() some times a second. The guardian puts a
// limit back only where the file holds a value that the parent has announced: a limit that somebody
// else has set stays. Thread-compatible.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "headrace/result.h"
#include "tier/kernel.h"

namespace headrace {

// Version 1 of cgroups has no word for "no limit" but the largest number of pages.
inline constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

// The number in the last word of the first line: of "oom_kill_disable 0" it is 0. What is no
// number, as "max", is no limit.
std::uint64_t limit_in(std::string_view text);

class Guardian {
 public:
  // Silence of the parent after which the limits are put back. Steps are a quarter of it apart.
  static constexpr std::chrono::milliseconds kMostSilence{1000};
  static constexpr std::size_t kMostLimits = 2;

  struct Limit {
    std::filesystem::path file;
    std::string before;  // is put back
  };

  // Starts the process. Limits are put back from the last to the first. The lock on `state` stays
  // taken until the guardian has ended too. Requires: at most kMostLimits. exhausted, denied: no
  // process can be started, with why.
  static Result<std::unique_ptr<Guardian>> start(const OwnDescriptor& state,
                                                 std::vector<Limit> limits);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Ends the process; what the limits are then stays, unless they were left to it.
  ~Guardian();

  // Leaves it to the process to put the limits back, where the parent could not: it tries for some
  // seconds, as after the end of the parent, and ends. Waits for that at most a second.
  void take_over();

  // Announces what is written to a limit next. The value before it counts as the parent's too.
  void expect(std::size_t limit, std::uint64_t value);
  // Says that the parent is alive.
  void beat();
  // Whether it may have put limits back since this was asked last.
  bool has_lifted();
  // Whether it is putting limits back now.
  bool is_lifting() const;
  // Whether the process has ended, so that nobody watches.
  bool ended() const;
  int pid() const { return pid_; }

 private:
  // Shared by both processes.
  struct Shared {
    std::atomic<std::uint64_t> beats{0};
    std::atomic<std::uint64_t> lifts{0};  // odd while limits are being put back
    std::atomic<bool> stops{false};       // the parent has let go
    std::array<std::array<std::atomic<std::uint64_t>, 2>, kMostLimits> ours{};
  };
  Guardian(std::vector<Limit> limits, Shared* shared)
      : limits_(std::move(limits)), shared_(shared) {}
  [[noreturn]] void run(int state, int parent) const;
  void reap();
  bool lift() const;

  const Origin origin_;
  const std::vector<Limit> limits_;
  Shared* const shared_;
  OwnDescriptor self_;   // a pidfd
  OwnDescriptor alive_;  // closes when the parent ends, or becomes another program (exec)
  int pid_ = -1;
  std::uint64_t seen_ = 0;  // of shared_->lifts
};

}  // namespace headrace
