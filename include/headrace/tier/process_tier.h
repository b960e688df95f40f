// SPDX-License-Identifier: Apache-2.0
// Memory of another process in a fast and a slow tier: hot memory stays in the fast tier, the
// coldest is demoted first.
//
// The same as PageTier (page_tier.h) for another process, with the decisions of `decide`. The slow
// tier is swap on compressed memory (zram) or an SSD; or with nodes: CXL memory, a slower node, or
// DRAM beside HBM. The process is watched from outside and needs no change; its bytes and addresses
// stay. With swap, page faults show which memory is hot, so a program without faults pays nothing.
// With nodes, accessed bits show it.
//
// The budget is not a limit, except with `hold`: memory that the program allocates between two
// steps may exceed it until the next step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/clock.h"
#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/tier/page_tier.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

enum class ProcessHotness : std::uint8_t {
  // The kernel removes page table entries periodically (kernel.numa_balancing); memory that faults
  // is in use. This setting is for the whole host, so it is set only on request.
  hint_faults,
  refaults,    // pages that return from swap; no others
  referenced,  // with nodes: accessed bits per mapping, and written pages
  damon,       // the kernel's DAMON, set up for regions of the process; only on request
};

// "hint-faults", "refaults", "referenced", "damon".
std::string_view to_string(ProcessHotness source);

struct ProcessTierOptions {
  TierPolicy policy;
  // As in PageTierOptions. Both empty: DRAM and swap.
  std::vector<NodeId> fast;
  std::vector<NodeId> slow;
  // The source of hotness. Nothing: the best one that changes no setting of the whole host.
  std::optional<ProcessHotness> source;
  // Time after which evidence counts half. 0: two minutes with nodes. With swap, the time in which
  // as much memory returns as the budget holds, within 15 s to an hour.
  Nanoseconds half_life{0};
  // With swap: the allowed growth of the program's share of CPU time in major faults, above the
  // share before; beyond it the last decisions are undone. With nodes: the share of one CPU that
  // looks and moves may take, including the program's faults after looks; if they take longer, they
  // are rarer. 0: no guard.
  double guard = 0.05;
  // The smallest distinguished memory: a power of two of bytes, at least a page. It is larger for
  // processes of more than 4 Mi chunks (64 Ki with nodes). With swap it is a huge page for
  // processes with at least half of their memory in huge pages.
  Bytes chunk{4096};
  // With swap: the kernel also limits the process to the budget, by the limit of the memory cgroup
  // in which it is alone, or which headrace tier run made for it. The limit is lifted:
  // - while the guard forbids demotion
  // - by a step that fails
  // - while less swap is free than 256 MiB, or than the policy moves in a second
  // - after a second without a step, also if this process is stopped or killed: a child process
  //   sees to it (docs/design/tier/guardian.md)
  bool hold = false;
  // The folder for records of settings to restore. Default: /run/headrace or
  // $XDG_RUNTIME_DIR/headrace.
  std::filesystem::path directory;
  const Clock* clock = nullptr;  // system_clock(); must outlive the tier
};

// The actions of one step, and the current state.
struct ProcessTierStep {
  Bytes resident;  // managed memory in the fast tier, as far as known
  Bytes out;
  Bytes went_out;  // by this step's decisions
  Bytes came_in;
  Bytes returned;  // by faults of the program, since the previous step
  // Memory that should have been demoted and stayed, at the last survey: shared, pinned, swap full.
  Bytes refused;
  bool surveyed = false;  // true: the location of all pages was read
  std::string undone;     // why the guard undid decisions; "" if it did not
  std::string note;       // an obstacle; "" if there is none
};

// Times and counts since the start.
struct ProcessTierTotals {
  Nanoseconds elapsed{};
  Nanoseconds program_cpu{};
  std::uint64_t major_faults = 0;  // of the program
  Nanoseconds tracker_cpu{};       // the tier's, to track and to decide
  Nanoseconds mover_cpu{};         // the tier's, to demote and to promote
  Bytes went_out;
  Bytes came_in;
  std::uint64_t undone = 0;  // number of times that the guard undid decisions
  std::uint64_t lost = 0;    // faults that came too fast to be read
};

// Thread-compatible. In a child made by fork() it is unsupported; the parent's continues.
class ProcessTier {
 public:
  // Takes control of a process, of any user. A process has one ProcessTier; containers with their
  // own /proc do not see the tiers of other containers. Needed kernel features are tried first, and
  // no change remains after an error.
  // Errors:
  // - absent: no such process
  // - exhausted: the process has a tier already
  // - denied: needs root (CAP_SYS_NICE, CAP_SYS_PTRACE); the message says what is possible without
  //   it
  // - unsupported: a kernel thread; no swap; a source that does not exist
  // - invalid: options that make no sense
  //
  // With nodes, a process of the same user needs no root. Do not dump it incrementally by
  // soft-dirty bits (CRIU) meanwhile: the dump would miss pages. Further errors: those of PageTier,
  // and
  // - denied: a node that the cpuset of the process forbids
  // - unsupported: a process that reads its own accessed or soft-dirty bits, which the tier clears
  // - unsupported: a process that shares its page table with a virtual machine, a GPU or an RDMA
  //   device
  //
  // Further errors with DAMON, which does not clear these bits:
  // - denied: needs root, or another program uses DAMON
  // - exhausted: another tier uses it
  //
  // Further errors with `hold`:
  // - unsupported: no memory cgroup, or the root cgroup
  // - denied: the cgroup is shared, may not swap, or may not be changed
  // - exhausted: another tier holds the cgroup
  static Result<std::unique_ptr<ProcessTier>> open(int pid, const ProcessTierOptions& options);

  // Restores the kernel's settings. Memory that is out stays out: in swap until touched, on its
  // node permanently.
  ~ProcessTier();

  ProcessHotness source() const;
  // Why this source, and the settings made for it. Both may change: a process gets hint faults when
  // it has a second thread.
  const std::string& why() const;

  // Reads the evidence, decides and moves; call it a few times a second.
  // Errors: absent: the process has ended or executed another program, also in all later steps;
  // unsupported, with nodes: it now reads its own bits, as for open().
  Result<ProcessTierStep> step();

  // The last decisions, at most 1000, oldest first.
  std::vector<TierDecision> decisions() const;
  ProcessTierTotals totals() const;

  class Inside;  // src/tier/process/process_tier.h

 private:
  explicit ProcessTier(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

// Restores kernel settings left by a killed tier. True: there were some. Each open() does this too.
bool restore_after_kill(const std::filesystem::path& directory = {});

}  // namespace HEADRACE_API headrace
