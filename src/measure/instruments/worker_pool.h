// SPDX-License-Identifier: Apache-2.0
// The CPUs of an experiment, and its workers: threads that are pinned, started together and joined
// before the call returns. Thread-compatible.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "topology/topology.h"

namespace headrace::instruments {

// The CPUs this process may run on, ascending; those of `node` alone if one is given.
CpuSet usable_cpus(const Node* node = nullptr);

// The calling thread is bound to the CPUs of a node for a scope. Single-thread: the same thread
// ends it.
class BoundToNode {
 public:
  explicit BoundToNode(const Node* node);
  ~BoundToNode();
  BoundToNode(const BoundToNode&) = delete;
  BoundToNode& operator=(const BoundToNode&) = delete;

  // False: there is no such node, it has no CPUs that this process may use, or the system refuses;
  // the thread runs where it ran.
  bool bound() const { return bound_; }

 private:
  const CpuSet before_;
  const bool bound_;
};

// While it lives, the process may use these in the eyes of the calling thread: so that points are
// listed for a machine that is not here, or the system is asked once. Nothing may be measured
// meanwhile.
class AsIfUsable {
 public:
  explicit AsIfUsable(CpuSet cpus);
  ~AsIfUsable();
  AsIfUsable(const AsIfUsable&) = delete;
  AsIfUsable& operator=(const AsIfUsable&) = delete;

 private:
  const CpuSet cpus_;
  const CpuSet* const before_;
};

// The CPU that observes a latency: the first that is not a thread of CPU 0's core, which most
// interrupts come to; else the first. Requires: a CPU.
unsigned observer_of(const Machine& machine, const CpuSet& cpus);

// Whether both are threads of one core: they share a first-level cache.
bool share_core(const Machine& machine, unsigned a, unsigned b);

// unsupported: `machine` describes another host than this one, whose speeds must not get into it.
Status check_is_here(const Machine& machine);

// Numbers of workers to measure with: 1, 2, 4, ... and `all`; none where `all` is 0.
std::set<std::size_t> thread_counts(std::size_t all);

// Runs part(0) ... part(cpus.size() - 1), each on a thread of its own pinned to cpus[i], and waits
// for all. denied: the system lets a thread not run there (a CPU that went offline, a cpuset that
// was narrowed, a container's seccomp profile); exhausted: a thread could not be started; then none
// of the parts was run; or a part threw std::bad_alloc, which must leave no other one waiting.
// timed_out: a thread that was started did not run for half a minute.
Status run_pinned(const CpuSet& cpus, const std::function<void(std::size_t)>& part);

// As run_pinned, with parts that begin within some microseconds of each other; timed_out: none was
// run. Returns the least
// part of its time that any of them had its CPU (cpu_share.h).
Result<double> run_together(const CpuSet& cpus, const std::function<void(std::size_t)>& part);

}  // namespace headrace::instruments
