// SPDX-License-Identifier: Apache-2.0
// Memory of this process in a fast and a slow tier: hot memory stays in the fast tier, the coldest
// is demoted first.
//
//     auto tier = headrace::PageTier::open({.policy = {.budget = budget}});
//     if (!tier) return headrace::Unexpected(tier.error());
//     headrace::Status added = (*tier)->add(memory);
//     auto step = (*tier)->step();  // about once a second
//
// Without nodes the fast tier is DRAM, and the slow tier is swap on compressed memory (zram) or an
// SSD, which every machine can have. The kernel swaps when memory is short. A PageTier swaps
// earlier, within a budget, by touches, and only memory added to it. It does not replace the
// kernel's reclaim. A page swapped out by the kernel stays out until it is touched or hot enough
// here.
//
// With nodes, pages move between those: out to CXL memory or a slower node, or from HBM to DRAM,
// and back. Contents and addresses stay, and any thread may use the memory meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/clock.h"
#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/tier/hotness.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The location of a chunk's bytes, and its heat (Hotness: 0 to 1).
struct ChunkPlace {
  std::uintptr_t begin = 0;  // address
  Bytes resident;            // in the fast tier
  Bytes out;                 // in the slow tier
  double heat = 0;
  bool backed_off = false;  // counts, but does not move now
};

struct TierPolicy {
  // Limit of the managed memory's resident bytes. Fast nodes with less space hold less.
  Bytes budget;
  // A chunk replaces another only if it is hotter by more than this, so equally hot chunks do not
  // alternate.
  double hysteresis = 0.1;
  // Colder chunks are not promoted, however much space there is.
  double least_heat = 0.05;
  // Limit of demoted and promoted bytes per second, together. Unused allowance expires after a
  // second, except that of three chunks, so that one chunk may replace another.
  Bytes per_second = 64_MiB;
};

// One chunk to demote or promote.
struct TierDecision {
  std::uintptr_t begin = 0;  // of the chunk
  bool in = false;
  Bytes bytes;
  double heat = 0;
  std::string reason;  // for people
};

// The moves of `chunks` to make now, in this order, of at most `allowance` bytes. First the coldest
// chunks are demoted until the rest is within the budget. Then the hottest chunks that are out are
// promoted, where there is space or chunks colder by more than the hysteresis make space. No chunk
// moves both ways. A chunk larger than the remaining allowance waits for the next call. Pure and
// deterministic.
std::vector<TierDecision> decide(std::span<const ChunkPlace> chunks, const TierPolicy& policy,
                                 Bytes allowance);

// The least heat at which moving a page pays within the half-life. For TierPolicy::least_heat, and
// for the hysteresis when a page replaces another. `move`: the time to promote one page and demote
// another for it. `saved`: the time that a page in the fast tier saves per second of use, which is
// its accesses not served by CPU caches, times the difference of latencies (from the Machine, or
// rows of a profile).
// Errors: invalid: a page in constant use does not pay; a duration that is not above 0.
Result<double> least_heat_that_pays(Nanoseconds move, Nanoseconds saved, Nanoseconds half_life);

struct PageTierOptions {
  TierPolicy policy;
  // The nodes of the fast tier, and those for cold memory. Pages on other nodes count as out. A
  // demoted chunk moves to the nearest slow node with space; of equally near ones, to the emptiest.
  // Free pages are space, and so is the page cache, which the kernel drops. A chunk that replaces
  // another moves only after that was demoted, so a slow node needs space for one chunk. Both
  // empty: DRAM and swap.
  std::vector<NodeId> fast;
  std::vector<NodeId> slow;
  // Moved as a whole: a power of two of pages. At least a huge page (2 MiB on x86) for memory that
  // has huge pages or requests them (MADV_HUGEPAGE).
  Bytes chunk{256 << 10};
  Nanoseconds half_life = std::chrono::seconds{10};
  Nanoseconds least_interval = std::chrono::milliseconds{100};
  // The share by which the program's work per second, as given to step(), may fall while pages
  // move. Beyond it the last moves are undone, and pages move only to keep the budget for a while.
  // 0: no guard.
  double guard = 0.05;
  const Clock* clock = nullptr;  // system_clock(); must outlive the tier
};

// The actions of one step.
struct TierStep {
  std::vector<TierDecision> decisions;
  Bytes resident;  // of all managed memory, after the step
  Bytes out;
  // Bytes that should have moved and did not: pinned, shared with a child made by fork(), no space;
  // with swap also locked, or touched again at once. As many bytes are not promoted; their
  // decisions are not in the list above.
  Bytes refused;
  // Resident bytes of chunks that did not move before and were not tried again in this step.
  Bytes backed_off;
  std::string undone;  // why the guard undid moves; "" if it did not
};

// Tracks memory by the source `referenced`, the only one of its process. Thread-safe. In a child
// made by fork() it is unsupported, and the memory stays usable.
class PageTier {
 public:
  // Opens a tier.
  // Errors:
  // - unsupported: a test page was not swapped out (no swap, swap full, forbidden by a cgroup, or a
  //   kernel before 5.14); no source `referenced`
  // - invalid: a budget or chunk out of range; a hysteresis or heat outside 0 to 1; an interval
  //   below 0; only one of `fast` and `slow` empty; a repeated node
  // - other errors of open_hotness()
  //
  // Errors with nodes:
  // - absent: a node that does not exist or that the cpuset forbids
  // - denied: a node to which this thread's policy does not bind; a container that forbids moving
  //   pages
  // - exhausted: a test page did not move to a node
  // - unsupported: a kernel without move_pages
  static Result<std::unique_ptr<PageTier>> open(const PageTierOptions& options);

  // Restores mappings. Memory that is out stays out: in swap until touched, on its node
  // permanently.
  ~PageTier();

  // Manages private anonymous memory from now on, in whole pages.
  // Errors: as HotnessSource::track(); unsupported: memory that is shared or a file's; with swap
  // also locked (mlock) or inaccessible (PROT_NONE) memory.
  Status add(std::span<const std::byte> memory);
  // Ends management of a range. Errors: invalid: it was not added as one range.
  Status remove(std::span<const std::byte> memory);

  // Looks, decides and moves; call it about once a second. Its time is bounded by the policy's
  // rate. A chunk that fails to move is skipped for 1 step, then 2, then 4, up to 64; other chunks'
  // bytes move instead.
  // Errors: exhausted: sooner than the least interval after the last step.
  //
  // `work`: the program's work since its start, in any unit of which it always does as many per
  // second as it can, such as queries under full load. The guard uses it to compare 8 steps with 8
  // others: at the start, after each fall, and at least every 64 times. Without `work` there is no
  // guard.
  Result<TierStep> step(std::optional<std::uint64_t> work = {});

  // The last decisions, at most 1000, oldest first.
  std::vector<TierDecision> decisions() const;

  class Inside;  // src/tier/page/page_tier.h

 private:
  explicit PageTier(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace HEADRACE_API headrace
