// SPDX-License-Identifier: Apache-2.0
// A child process that restores memory limits when its parent is silent. A limit is safe only while
// its setter runs, and the setter may be stopped (SIGSTOP, Ctrl-Z), killed, or starved of CPU time.
// docs/design/tier/guardian.md says why this is a process.
//
// The parent starts a guardian with the files of its limits and their old contents, announces each
// value by expect() before it writes it, and calls beat() several times a second. The guardian
// restores a limit only if the file holds a value that the parent announced; a limit set by another
// program stays. Thread-compatible.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/own_files.h"
#include "headrace/result.h"
#include "host/cgroups.h"

namespace headrace {

class Guardian {
 public:
  // Limits are restored after this silence of the parent; checks are a quarter of it apart.
  static constexpr std::chrono::milliseconds kMostSilence{1000};
  static constexpr std::size_t kMostLimits = 2;

  struct Limit {
    std::filesystem::path file;
    std::string before;  // the value to restore
  };

  // Starts the process. Limits are restored from last to first. The lock on `state` stays taken
  // until the guardian has ended too. Requires: at most kMostLimits. Errors: exhausted, denied: the
  // process cannot start, with the reason.
  static Result<std::unique_ptr<Guardian>> start(const OwnDescriptor& state,
                                                 std::vector<Limit> limits);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Ends the process. The limits keep their values, unless take_over() was called.
  ~Guardian();

  // Lets the process restore the limits that the parent could not: it tries for some seconds, as
  // after the end of the parent, and then ends. Waits for it at most a second.
  void take_over();

  // Announces the next value written to a limit. The value before it also counts as the parent's.
  void expect(std::size_t limit, std::uint64_t value);
  // Reports that the parent is alive.
  void beat();
  // Whether limits may have been restored since the last call.
  bool has_lifted();
  // Whether limits are being restored now.
  bool is_lifting() const;
  // Whether the process has ended, so that no guardian watches.
  bool ended() const;
  int pid() const { return pid_; }

 private:
  // In memory shared by both processes.
  struct Shared {
    std::atomic<std::uint64_t> beats{0};
    std::atomic<std::uint64_t> lifts{0};  // odd while limits are being restored
    std::atomic<bool> stops{false};       // the parent has ended the guardian
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
  OwnDescriptor alive_;  // closes when the parent ends or executes another program
  int pid_ = -1;
  std::uint64_t seen_ = 0;  // of shared_->lifts
};

}  // namespace headrace
