// SPDX-License-Identifier: Apache-2.0
// Which block goes when there is no space: a replaceable order over the blocks of one node.
//
// The Cache calls it under a lock, so an order is Single-thread. It does not know what is pinned:
// the Cache asks for victims and says no to those it cannot drop, at most `effort` times per
// search, so that a cache full of pins is refused quickly instead of being searched.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// The part of a cache entry that an order may use: links and a mark. Embedded in the entry, so that
// an order costs no memory of its own.
struct EvictionLinks {
  EvictionLinks* newer = nullptr;
  EvictionLinks* older = nullptr;
  // Atomic: the cache may set it without its lock (EvictionOrder::marks).
  std::atomic<bool> visited = false;
};

class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  virtual void insert(EvictionLinks& entry) = 0;
  virtual void remove(EvictionLinks& entry) = 0;
  // A hit. Must be cheap: no reordering is needed by SIEVE and CLOCK.
  virtual void touch(EvictionLinks& entry) = 0;
  // Whether touch() does nothing but set `visited`. Then the cache sets it by itself and hits take
  // no lock; with an order that says no, each does.
  virtual bool marks() const { return false; }
  // Offers victims in order until `accept` takes one or `effort` have been offered. Returns the one
  // taken, or nullptr. The cache calls remove for what goes, now or later: it may have chosen one
  // that it said no to (it chooses several ahead), and keep one that it took.
  virtual EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                                unsigned effort) = 0;
};

using EvictionFactory = std::function<std::unique_ptr<EvictionOrder>()>;

// SIEVE (Zhang et al., NSDI '24): a queue in order of insertion and a hand that moves from old to
// new, sparing and unmarking what was touched. New blocks do not push the hand, so that a scan
// cannot wash out what is used.
std::unique_ptr<EvictionOrder> sieve();
// CLOCK, second chance: the hand reinserts what was touched.
std::unique_ptr<EvictionOrder> clock_order();

}  // namespace HEADRACE_API headrace
