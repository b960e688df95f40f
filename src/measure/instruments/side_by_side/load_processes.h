// SPDX-License-Identifier: Apache-2.0
// Loads in processes of their own, with separate page tables, TLB entries and mapping locks, as
// programs have that run side by side.
//
// Children are made by fork(), each bound to a CPU. Each works on memory that only it touches: the
// parent maps it by a placement and does not touch it, so the child inherits the policy and no
// pages. A child runs only system calls and the loop of its load, which is safe after a fork() of a
// process with threads.
//
// A child ends with its parent (PR_SET_PDEATHSIG), and is ended and collected when this object
// ends. Ctrl-C at the terminal is left to the parent. If memory runs out, the kernel kills a child
// first, which then is an error. Single-thread: the thread that starts the children must outlive
// them.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "measure/instruments/side_by_side/side_by_side.h"

namespace headrace::instruments {

// The load of one process.
struct LoadProcess {
  unsigned cpu = 0;
  // Works on `memory`. Its step() allocates nothing and cannot fail.
  std::unique_ptr<Load> load;
  std::vector<std::shared_ptr<const Buffer>> memory;
};

// Memory for processes: on the node, untouched, in whole huge pages. Errors: those of allocate().
Result<std::shared_ptr<Buffer>> untouched(const Machine& machine, NodeId node, Bytes bytes);

class LoadProcesses {
 public:
  // Starts the processes; on return each has touched its memory, which was checked to be in place,
  // and waits. Errors: io: memory is not in place; denied: a process may not run on its CPU;
  // exhausted: no more processes.
  static Result<std::unique_ptr<LoadProcesses>> start(std::vector<LoadProcess> all);
  ~LoadProcesses();
  LoadProcesses(const LoadProcesses&) = delete;
  LoadProcesses& operator=(const LoadProcesses&) = delete;

  // side_by_side() of these loads, on threads of this process, and the first `count` processes,
  // whose rates come last. Without loads: only the processes. Requires: a load or a process.
  // Errors: io: a process ended, or memory moved to another node; timed_out: a process did not
  // begin or stop.
  Result<SideBySide> beside(const CpuSet& cpus, const std::vector<Load*>& loads, Nanoseconds time,
                            std::size_t count);

  std::vector<pid_t> ids() const;
  // The least share of huge pages in any of their memory.
  double huge_part() const;

 private:
  class Child;
  LoadProcesses();
  Status stop(std::size_t count);
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace headrace::instruments
