// SPDX-License-Identifier: Apache-2.0
// The order in which blocks of one node are evicted: a replaceable policy.
//
// The Cache calls an order under a lock, so an order is Single-thread, and it must not throw. An
// order does not know pins: the Cache asks for victims and rejects pinned ones. A search offers at
// most `effort` victims, so a request to a cache full of pins fails fast.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

// The part of a cache entry that an order may use. Embedded in the entry, so an order needs no
// memory of its own.
struct EvictionLinks {
  EvictionLinks* newer = nullptr;
  EvictionLinks* older = nullptr;
  // Atomic: the cache may set it without its lock (EvictionOrder::marks).
  std::atomic<bool> visited = false;
  std::uint8_t of_order = 0;  // for the order only, from insert() to remove()
};

// A block on insertion into the order.
struct EvictionBlock {
  // Expected use: an `again` block stays longer than a `fresh` one.
  enum class Use : std::uint8_t { fresh, again };

  std::uint64_t key = 0;  // a hash, equal for equal bytes
  std::uint64_t bytes = 0;
  Use use = Use::fresh;
};

class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  virtual void insert(EvictionLinks& entry, const EvictionBlock& block) = 0;
  virtual void remove(EvictionLinks& entry) = 0;
  // remove() of a block that is evicted for space. The order may remember its key.
  virtual void evict(EvictionLinks& entry, std::uint64_t /*key*/) { remove(entry); }
  // The use with which to insert() a block again that is removed now: a plan names it meanwhile.
  virtual EvictionBlock::Use use_of(const EvictionLinks& /*entry*/) const {
    return EvictionBlock::Use::fresh;
  }
  // A hit. Must be cheap: SIEVE and CLOCK reorder nothing here.
  virtual void touch(EvictionLinks& entry) = 0;
  // True if touch() only sets `visited`. The cache then sets it itself, and hits take no lock. If
  // false, each hit takes a lock.
  virtual bool marks() const { return false; }
  // Offers victims in order until `accept` takes one or `effort` have been offered. Returns the
  // accepted victim, or nullptr. The cache calls evict() for each block that it evicts, now or
  // later. It chooses several ahead, so it may evict a rejected block and keep an accepted one.
  virtual EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                                unsigned effort) = 0;
};

using EvictionFactory = std::function<std::unique_ptr<EvictionOrder>()>;

// S3-FIFO (Yang et al., SOSP '23). New blocks enter a small queue of a tenth of the bytes. Blocks
// touched there move to the main queue, a CLOCK. Other blocks are evicted and their keys
// remembered: a block that returns soon enters the main queue directly. So a scan displaces only
// the small queue. Unlike the paper: one touch is enough, and a block that cannot be evicted
// returns to its queue as the newest.
std::unique_ptr<EvictionOrder> s3_fifo();
// SIEVE (Zhang et al., NSDI '24): a queue in insertion order, and a hand that moves from old to
// new, which spares and unmarks touched blocks. During a scan the hand meets only new blocks:
// blocks behind it stay, used or not.
std::unique_ptr<EvictionOrder> sieve();
// CLOCK, second chance: the hand reinserts touched blocks.
std::unique_ptr<EvictionOrder> clock_order();
// The order of this name: "s3-fifo", "sieve" or "clock". Errors: invalid: any other name.
Result<EvictionFactory> eviction_order(std::string_view name);

}  // namespace HEADRACE_API headrace
