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

// The CPUs this process may use, ascending; with `node`, only that node's.
CpuSet usable_cpus(const Node* node = nullptr);

// Binds the calling thread to the CPUs of a node for a scope. Single-thread: the same thread ends
// it.
class BoundToNode {
 public:
  explicit BoundToNode(const Node* node);
  ~BoundToNode();
  BoundToNode(const BoundToNode&) = delete;
  BoundToNode& operator=(const BoundToNode&) = delete;

  // False: no such node, no usable CPUs on it, or the system refuses; the thread is then unbound.
  bool bound() const { return bound_; }

 private:
  const CpuSet before_;
  const bool bound_;
};

// While it exists, usable_cpus() in the calling thread returns these CPUs: to list points for
// another machine, or to ask the system only once. Do not measure meanwhile.
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

// The CPU that observes latency: the first one outside CPU 0's core, which gets most interrupts;
// else the first. Requires: at least one CPU.
unsigned observer_of(const Machine& machine, const CpuSet& cpus);

// Whether both are threads of one core, with a shared first-level cache.
bool share_core(const Machine& machine, unsigned a, unsigned b);

// Errors: unsupported: `machine` describes another host, and must not get this one's speeds.
Status check_is_here(const Machine& machine);

// Numbers of workers to measure with: 1, 2, 4, ... and `all`; empty if `all` is 0.
std::set<std::size_t> thread_counts(std::size_t all);

// Runs part(0) ... part(cpus.size() - 1), each on its own thread pinned to cpus[i], and waits for
// all. Errors:
// - denied: a thread may not run on its CPU (offline, a narrowed cpuset, a container's seccomp)
// - exhausted: a thread could not start, and no part ran; or a part threw std::bad_alloc, which
//   must leave no other part waiting
// - timed_out: a thread did not run for half a minute after its start.
Status run_pinned(const CpuSet& cpus, const std::function<void(std::size_t)>& part);

// As run_pinned, with parts that begin within some microseconds. Returns the least share of its
// time in which one of them had its CPU (cpu_share.h). Errors: also timed_out: no part ran.
Result<double> run_together(const CpuSet& cpus, const std::function<void(std::size_t)>& part);

}  // namespace headrace::instruments
