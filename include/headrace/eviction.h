// SPDX-License-Identifier: Apache-2.0
// Which block goes when there is no space: a replaceable order over the blocks of one node.
//
// The Cache calls it under a lock, so an order is Single-thread, and it must not throw. It does not
// know what is pinned: the Cache asks for victims and says no to those it cannot drop, at most
// `effort` times per search, so that a cache full of pins is refused quickly instead of being
// searched.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

// The part of a cache entry that an order may use: links and a mark. Embedded in the entry, so that
// an order costs no memory of its own.
struct EvictionLinks {
  EvictionLinks* newer = nullptr;
  EvictionLinks* older = nullptr;
  // Atomic: the cache may set it without its lock (EvictionOrder::marks).
  std::atomic<bool> visited = false;
  std::uint8_t of_order = 0;  // for the order alone, from insert() to remove()
};

// A block that enters the order.
struct EvictionBlock {
  // Known of its use: a block that is used `again` stays longer than one that is `fresh`; one that
  // is `used_up` goes before all others.
  enum class Use : std::uint8_t { fresh, again, used_up };

  std::uint64_t key = 0;  // a hash that is equal for the same bytes
  std::uint64_t bytes = 0;
  Use use = Use::fresh;
};

class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  virtual void insert(EvictionLinks& entry, const EvictionBlock& block) = 0;
  virtual void remove(EvictionLinks& entry) = 0;
  // remove() of a block that goes because others need its space. The order may remember its key.
  virtual void evict(EvictionLinks& entry, std::uint64_t /*key*/) { remove(entry); }
  // A hit. Must be cheap: no reordering is needed by SIEVE and CLOCK.
  virtual void touch(EvictionLinks& entry) = 0;
  // Whether touch() does nothing but set `visited`. Then the cache sets it by itself and hits take
  // no lock; with an order that says no, each does.
  virtual bool marks() const { return false; }
  // Offers victims in order until `accept` takes one or `effort` have been offered. Returns the one
  // taken, or nullptr. The cache calls evict() for what goes, now or later: it may have chosen one
  // that it said no to (it chooses several ahead), and keep one that it took.
  virtual EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                                unsigned effort) = 0;
};

using EvictionFactory = std::function<std::unique_ptr<EvictionOrder>()>;

// S3-FIFO (Yang et al., SOSP '23). New blocks enter a small queue of a tenth of the bytes; those
// that are touched there move to the main queue, the others go, and their keys are remembered: a
// block that comes back soon enters the main queue. So a scan only displaces what is in the small
// queue. The main queue is CLOCK. Unlike the paper, one touch is enough, and a block that cannot go
// is put back into its queue as the newest.
std::unique_ptr<EvictionOrder> s3_fifo();
// SIEVE (Zhang et al., NSDI '24): a queue in order of insertion and a hand that moves from old to
// new, sparing and unmarking what was touched. During a scan the hand only meets new blocks: blocks
// behind it stay, used or not.
std::unique_ptr<EvictionOrder> sieve();
// CLOCK, second chance: the hand reinserts what was touched.
std::unique_ptr<EvictionOrder> clock_order();
// "s3-fifo", "sieve" or "clock"; any other name is invalid.
Result<EvictionFactory> eviction_order(std::string_view name);

}  // namespace HEADRACE_API headrace
