// SPDX-License-Identifier: Apache-2.0
// Memory of another process between a fast and a slow tier: the hot of it stays, the cold goes out
// first.
//
// As PageTier (page_tier.h) for one's own memory: the slow tier is swap, on compressed memory
// (zram) or an SSD, or with nodes CXL memory, a slower node, or DRAM beside HBM; what goes out and
// comes in is decided by `decide`. A process is watched from outside and needs to know nothing; its
// bytes and addresses stay as they are. Beside swap what is hot is told by its page faults, so that
// a program that never faults costs nothing; between nodes by accessed bits. It is no limit, but
// where a cgroup holds: memory that the program takes between two steps is over the budget until
// the next one.
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
  hint_faults,  // the kernel takes entries away now and then (kernel.numa_balancing): who faults is
                // used. One setting for the host: set only where it is asked for
  refaults,     // pages that are out and come back; no other
  referenced,   // between nodes: accessed bits, by mapping, and the pages that are written
  damon,        // DAMON of the kernel, set up for it: regions of the process; only if asked for
};

// "hint-faults", "refaults", "referenced", "damon".
std::string_view to_string(ProcessHotness source);

struct ProcessTierOptions {
  TierPolicy policy;
  // As those of PageTierOptions. Both empty: DRAM and swap.
  std::vector<NodeId> fast;
  std::vector<NodeId> slow;
  // The source to take; without one the best that needs no setting of the whole host changed.
  std::optional<ProcessHotness> source;
  // Evidence counts half after this time. 0: two minutes between nodes; beside swap the time in
  // which as much comes back as the budget holds, 15 s to an hour.
  Nanoseconds half_life{0};
  // By how much the share of the program's CPU time that goes into major faults may grow over what
  // it was before; beyond, the last decisions are undone. Between nodes: the share of one CPU that
  // looks and moves take together, faults of the program after looks included; they are rarer
  // where they take longer. 0: no guard.
  double guard = 0.05;
  // Memory that is told apart, a power of two of bytes and at least a page. It is more for
  // processes of which more than 4 Mi chunks would have to be kept account of (between nodes
  // 64 Ki). Beside swap it is a huge page for processes of which half of the memory or more is in
  // huge pages.
  Bytes chunk{4096};
  // Beside swap: the kernel too keeps the process within the budget, by the limit of the memory
  // cgroup that it is alone in, or that headrace tier run made for it. It is let go while the guard
  // has nothing go out, by a step that fails, while less swap is free than 256 MiB, or than the
  // policy moves in a second, and after a second without a step, also where this process is
  // stopped or killed: a child process sees to that (docs/design/tier/guardian.md).
  bool hold = false;
  // Where what is to be put back is noted; /run/headrace or $XDG_RUNTIME_DIR/headrace.
  std::filesystem::path directory;
  const Clock* clock = nullptr;  // system_clock(); must outlive the tier
};

// What one step did, and what is so since the start.
struct ProcessTierStep {
  Bytes resident;  // in the fast tier, of the memory that is managed, as far as known
  Bytes out;
  Bytes went_out;  // by this step's decisions
  Bytes came_in;
  Bytes returned;  // by faults of the program, since the step before
  // Memory that was to go out and stayed, as the last survey found: shared, pinned, swap full.
  Bytes refused;
  bool surveyed = false;  // whether the places of all pages were read
  std::string undone;     // by the guard, with why; "" if nothing was
  std::string note;       // what hinders; "" if nothing does
};

// Times and counts since the start.
struct ProcessTierTotals {
  Nanoseconds elapsed{};
  Nanoseconds program_cpu{};
  std::uint64_t major_faults = 0;  // of the program
  Nanoseconds tracker_cpu{};       // ours: to find out and to decide
  Nanoseconds mover_cpu{};         // ours: to page out and to bring in
  Bytes went_out;
  Bytes came_in;
  std::uint64_t undone = 0;  // times that the guard undid something
  std::uint64_t lost = 0;    // faults that came faster than they were taken
};

// Thread-compatible. In a child made by fork() it is unsupported, and the parent's goes on.
class ProcessTier {
 public:
  // Takes the process: one ProcessTier for each, of whatever user, but that containers have a /proc
  // of their own and do not see that another has it. What is needed of the kernel is
  // tried first, and nothing is changed after an error. absent: no such process; exhausted: another
  // tiers it; denied: it takes root (CAP_SYS_NICE, CAP_SYS_PTRACE), with what is possible without;
  // unsupported: a thread of the kernel, no swap, a source that is not there; invalid: options that
  // make no sense. With nodes: also those of PageTier, and denied: a node that the cpuset of the
  // process forbids; unsupported: a process that goes by its accessed or soft-dirty bits itself,
  // which are cleared, or that shares its page table with a virtual machine, a GPU or an RDMA
  // device; the process may be one of the same user. An incremental dump of it by
  // soft-dirty bits (CRIU) misses pages: take none meanwhile. By DAMON, which leaves those bits
  // alone: denied: it takes root, or somebody else has it; exhausted: another tier has it. With
  // `hold`: unsupported: no memory cgroup, or the root one; denied: one that the process shares,
  // that may not swap, or that may not be changed; exhausted: one that another tier holds.
  static Result<std::unique_ptr<ProcessTier>> open(int pid, const ProcessTierOptions& options);

  // Puts the settings of the kernel back; what is out stays out: in swap until it is touched, on
  // its node for ever.
  ~ProcessTier();

  ProcessHotness source() const;
  // Why this source, and what was set for it. Both may change: a process gets hint faults when it
  // has got a second thread.
  const std::string& why() const;

  // Takes what is known by now, decides, and moves: to be called some times a second. absent: the
  // process has ended, or has become another program; so says each step from then on. unsupported,
  // between nodes: it has begun to go by its own bits, as for open().
  Result<ProcessTierStep> step();

  // The last decisions, at most 1000, oldest first.
  std::vector<TierDecision> decisions() const;
  ProcessTierTotals totals() const;

  class Inside;  // src/tier/process/process_tier.h

 private:
  explicit ProcessTier(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

// Puts back settings of the kernel that a tier left that was killed; true: there was something.
// Each open() does so too.
bool restore_after_kill(const std::filesystem::path& directory = {});

}  // namespace HEADRACE_API headrace
