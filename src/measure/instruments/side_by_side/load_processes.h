// SPDX-License-Identifier: Apache-2.0
// Loads that are processes of their own: each has page tables, TLB entries and a lock on its
// mappings of its own, as programs have that run beside each other.
//
// Children made by fork(), each bound to a CPU, that work on memory which only they touch: the
// parent maps it by a placement and leaves it untouched, so that a child finds the policy and no
// pages. What a child does is safe after a fork() of a process with threads: system calls and the
// loop of its load. A child ends with its parent (PR_SET_PDEATHSIG), and is ended and waited for
// when this goes; a Ctrl-C at the terminal is the parent's to answer. If memory runs out, the
// kernel ends a child first, which is then an error. Single-thread: the thread that starts the
// children must live as long as they do.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "measure/instruments/side_by_side/side_by_side.h"

namespace headrace::instruments {

// What one process does.
struct LoadProcess {
  unsigned cpu = 0;
  // Whose step() allocates nothing and does not fail, on the memory below.
  std::unique_ptr<Load> load;
  std::vector<std::shared_ptr<const Buffer>> memory;
};

// Memory for processes: placed on the node, untouched, whole huge pages. The errors of allocate().
Result<std::shared_ptr<Buffer>> untouched(const Machine& machine, NodeId node, Bytes bytes);

class LoadProcesses {
 public:
  // All have touched their memory, which lies where it must (io: it does not), and wait. denied: a
  // process may not run on its CPU; exhausted: the system starts no more processes.
  static Result<std::unique_ptr<LoadProcesses>> start(std::vector<LoadProcess> all);
  ~LoadProcesses();
  LoadProcesses(const LoadProcesses&) = delete;
  LoadProcesses& operator=(const LoadProcesses&) = delete;

  // side_by_side() of these loads, on threads of this process, and the first `count` processes,
  // whose rates come behind; without loads of the processes alone. io: a process ended by itself,
  // or memory has moved to another node; timed_out: one did not begin or did not stop. Requires: a
  // load or a process.
  Result<SideBySide> beside(const CpuSet& cpus, const std::vector<Load*>& loads, Nanoseconds time,
                            std::size_t count);

  std::vector<pid_t> ids() const;
  // The least part of any memory of theirs that the kernel gave in huge pages.
  double huge_part() const;

 private:
  class Child;
  LoadProcesses();
  Status stop(std::size_t count);
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace headrace::instruments
