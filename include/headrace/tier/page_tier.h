// SPDX-License-Identifier: Apache-2.0
// Memory of this process between a fast and a slow tier: the hot of it stays in the fast one, the
// cold goes out first.
//
// Without nodes the fast tier is DRAM and the slow one what every machine can have: compressed
// memory (zram) or an SSD, as swap. The kernel moves pages there by itself when memory is short; a
// PageTier does it ahead of that, for memory it is given, within a budget, by what was touched. It
// is not the kernel's reclaim: what the kernel pages out besides stays out until it is touched or
// hot enough here. With nodes it moves pages between those: out to CXL memory or a slower node, or
// from HBM to DRAM, and back. Pages go out and come back as they are; addresses stay, and any
// thread may use the memory meanwhile.
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

// Where the bytes of a chunk are, and how hot it is (Hotness: 0 to 1).
struct ChunkPlace {
  std::uintptr_t begin = 0;  // address
  Bytes resident;            // in the fast tier
  Bytes out;                 // in the slow one
  double heat = 0;
  bool backed_off = false;  // counts, but does not move now
};

struct TierPolicy {
  // Most bytes of the memory that may be resident; fast nodes that have room for less hold less.
  Bytes budget;
  // A chunk takes the place of another only if it is hotter by more than this, so that two of equal
  // heat do not take turns.
  double hysteresis = 0.1;
  // Chunks colder than this are not brought in, whatever room there is.
  double least_heat = 0.05;
  // Most bytes that go out and come in together in a second; what is not used in a second is lost,
  // but for three chunks, which one chunk may take for another.
  Bytes per_second = 64_MiB;
};

// One chunk that is to go out, or to come in.
struct TierDecision {
  std::uintptr_t begin = 0;  // of the chunk
  bool in = false;
  Bytes bytes;
  double heat = 0;
  std::string reason;  // in words
};

// What is to be done now with `chunks`, in this order, moving at most `allowance` bytes. First the
// coldest go out until the rest fits the budget. Then the hottest that are out come in, where there
// is room or those that are colder by more than the hysteresis make it. No chunk goes both ways. A
// chunk that is larger than what is left of the allowance waits for the next time. Pure: the same
// arguments, the same decisions.
std::vector<TierDecision> decide(std::span<const ChunkPlace> chunks, const TierPolicy& policy,
                                 Bytes allowance);

// The least heat at which a page that is moved pays for it within the half-life, for
// TierPolicy::least_heat; and for its hysteresis, the page taking the place of another. `move` is
// what moving a page in and one out for it takes; `saved` what a page in the fast tier saves each
// second that it is in use: its accesses that no CPU cache serves, times the difference of
// latencies (Machine, or rows of a profile). invalid: a page in use all the time does not pay; a
// duration that is not above 0.
Result<double> least_heat_that_pays(Nanoseconds move, Nanoseconds saved, Nanoseconds half_life);

struct PageTierOptions {
  TierPolicy policy;
  // The nodes of the fast tier, and those to which what is cold goes; pages on any other node are
  // out too. Each chunk goes to the nearest that has room, the emptiest of those; free pages are
  // room, and the page cache, which the kernel drops for it. A chunk takes the place of another
  // only after that one went out, for which a slow node needs room for a chunk. Both empty: DRAM
  // and swap.
  std::vector<NodeId> fast;
  std::vector<NodeId> slow;
  // Moved as a whole, a power of two of pages; at least a huge page (2 MiB on x86) of memory that
  // has huge pages, or is to have them (MADV_HUGEPAGE).
  Bytes chunk{256 << 10};
  Nanoseconds half_life = std::chrono::seconds{10};
  Nanoseconds least_interval = std::chrono::milliseconds{100};
  // By which share the program may do less work per second, of what it tells step(), while pages
  // move than while they rest; beyond, the last moves are undone and nothing moves for the better
  // for a while. The budget is kept all the same. 0: no guard.
  double guard = 0.05;
  const Clock* clock = nullptr;  // system_clock(); must outlive the tier
};

// What one step did.
struct TierStep {
  std::vector<TierDecision> decisions;
  Bytes resident;  // of all memory that is managed, after it
  Bytes out;
  // Bytes that were to move and did not: pinned, shared with a child made by fork(), no room there;
  // with swap also locked, or touched again at once. As many as did not go out do not come in, and
  // their decisions are left out above.
  Bytes refused;
  // Resident bytes of chunks that refused before and were not tried again this time.
  Bytes backed_off;
  std::string undone;  // by the guard, with why; "" if nothing was
};

// Tracks by the source `referenced`, the only one of its process. Thread-safe. In a child made by
// fork() it is unsupported; the memory is there as ever.
class PageTier {
 public:
  // unsupported: a page of its own that was to go out did not, because there is no swap or it is
  // full, or a cgroup allows none, or the kernel is older than 5.14; or no source `referenced`.
  // invalid: a budget or chunk that is none, a hysteresis or heat outside 0 to 1, an interval below
  // 0, one of `fast` and `slow` empty, a node twice. Other errors as open_hotness(). With nodes:
  // absent: a node that is not there or that the cpuset forbids; denied: one that the policy of
  // this thread does not bind to, or a container that forbids to move pages; exhausted: a page of
  // its own that was to go to a node did not; unsupported: a kernel without move_pages.
  static Result<std::unique_ptr<PageTier>> open(const PageTierOptions& options);

  // Restores mappings; what is out stays out: in swap until it is touched, on its node for ever.
  ~PageTier();

  // Manages private anonymous memory from now on, in whole pages. Errors as HotnessSource::track();
  // unsupported: memory that is shared or a file's; with swap also what is locked (mlock) or
  // without access (PROT_NONE).
  Status add(std::span<const std::byte> memory);
  // Ends that. invalid: it was not added as one range.
  Status remove(std::span<const std::byte> memory);

  // Looks, decides, and moves: to be called each second or so. The time it takes is bounded by
  // the policy's rate. A chunk that refuses to move is let be for 1 step, then 2, then 4, up to 64,
  // and its bytes are moved of others. exhausted: sooner than the least interval after the last
  // one.
  //
  // `work`: what the program has done since its start, in any unit of which it always does as many
  // per second as it can, such as queries under full load; with it the guard compares 8 steps with
  // 8 others, at the start, after each fall and at least every 64 times. Without it none does.
  Result<TierStep> step(std::optional<std::uint64_t> work = {});

  // The last decisions, at most 1000, oldest first.
  std::vector<TierDecision> decisions() const;

  class Inside;  // src/tier/page/page_tier.h

 private:
  explicit PageTier(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace HEADRACE_API headrace
