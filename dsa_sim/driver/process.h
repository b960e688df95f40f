// SPDX-License-Identifier: Apache-2.0
// The process that opened a file, told from all others by its memory, as the kernel's driver tells
// them: a child after fork() is another, and so is the program after exec(); a thread is not.
//
// FUSE says which thread calls. Thread-safe.
#pragma once

#include <sys/types.h>

#include "dsa_sim/driver/answer.h"

namespace headrace::emulator {

class Process {
 public:
  // The one that `thread` is of. ESRCH: there is none, or it is in a PID namespace that cannot be
  // seen from here; EACCES: its memory may not be looked at.
  static Answer<Process> open(pid_t thread);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  pid_t pid() const { return pid_; }
  // Whether `thread` runs in the memory that the process had when it was opened.
  bool has(pid_t thread) const;

 private:
  Process(pid_t pid, int pages) : pid_(pid), pages_(pages) {}

  const pid_t pid_;
  int pages_;  // its page map: it belongs to the memory, not to the number of the process
};

}  // namespace headrace::emulator
