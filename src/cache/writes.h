// SPDX-License-Identifier: Apache-2.0
// Write-backs of dirty blocks: started, waited for, made durable. The rules of who may write a
// block are in Blocks (blocks.h).
//
// A dirty block goes back when the eviction order offers it, when too little of a budget is clean,
// when an access needs its space or bytes beside it, and by write_back(). No thread of its own:
// threads that access the cache start the write-backs, and engines do them.
//
// Thread-safe. Takes the shard's lock for its part of the work.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>

#include "cache/blocks.h"
#include "cache/fills.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"
#include "headrace/cache.h"

namespace headrace {

// The part of the extent that lies in its object. Nothing: no byte.
std::optional<Range> inside(const Extent& extent);

class Writes {
 public:
  Writes(ShardState& state, Fills& fills) : state_(state), fills_(fills) {}

  // The file of a source; null: it is memory.
  const File* file_of(const Extent& extent) const;
  // Why an access may not write it, besides that the extent is invalid; nothing: it may.
  std::optional<Error> refusal(const Extent& extent) const;
  // Reasons for a Block without a copy.
  static Error held_elsewhere(const Extent& extent);
  static Error overlaps_changed(const Extent& extent);
  static Error cannot_go_back(const Extent& extent, const Error& why);
  // Starts the write-backs that are due. Not in a callback of the Mover, since
  // CacheOptions::before_write_back may block: then the next call does it.
  void start_due() noexcept {
    if (state_.signals.clean_due.load() && !state_.mover.in_callback()) start_all();
  }
  // Waits until all blocks that are dirty now and overlap the range (null: all) are written back.
  // `held_too`: also for those that Blocks hold for writing. Errors: as Cache::write_back().
  Status write_back(const Range* range, Patience& patience, const std::function<bool()>* stop,
                    bool held_too);
  // The same for all blocks that no Block holds, within kShutdownBound. Those that cannot go back
  // stay dirty. Does nothing in a cache that is not writable.
  void all_back();
  // Prints one line if blocks are dirty, which are about to be lost.
  void report_lost() const noexcept;
  // Drops the blocks of the range without a write-back. Errors: as Cache::discard().
  Status discard(const Range& range, Patience& patience);
  // After a smaller budget: blocks go back until the rest fits.
  void clean_node(std::uint16_t node);

 private:
  static constexpr std::size_t kMost = 16;  // blocks submitted together

  void start_all() noexcept;
  void submit(std::span<Fill*> fills) noexcept;
  void wait(std::uint32_t seen, Patience& patience, Backoff& naps);

  ShardState& state_;
  Fills& fills_;
};

}  // namespace headrace
