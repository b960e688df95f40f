// SPDX-License-Identifier: Apache-2.0
// The reasons of a cache: Cache::explain() says where an extent is, why it has no copy, when a plan
// uses it next, and after how many uses a copy pays.
//
//   auto found = (*cache)->explain(extent);
//   if (found) puts(found->text.c_str());
//   // not cached; next planned use in 12 ms; a copy to node 0 (dram) takes 1.3 ms, pays from 2
//   // uses on
//
// It starts no copy and counts as no access. Times are of an idle machine, by the machine's
// measured or rated speeds (`headrace measure`); without them they are unknown.
// Errors: invalid: an extent outside its object, or empty; unsupported: a child of fork().
//
// Cost: the lock of each shard once. Cache::explain() is Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/cache.h"
#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

struct CacheExplanation {
  // The block that covers the extent is absent, filling or ready.
  BlockState state = BlockState::absent;
  bool dirty = false;
  // The node of that block, else the one that a copy would be made on. Nothing: see `refusal`.
  std::optional<NodeId> node;
  // Why an access would make no copy. Nothing: there is one, or it would be made, unless its
  // tenant's pins are at their bound (CacheTenant::most_pinned). Errors:
  // - absent: no node is faster than the source, or none of the faster ones has a budget
  // - exhausted: larger than a shard's budget; an equal access found no space, and nothing was
  //   released since
  // - other errors of the placement policy; the error of a lost GPU
  std::optional<Error> refusal;
  bool planned = false;  // a plan will use an extent that lies in it
  // Until that use, at the pace of the consumer. Nothing: none is planned, the consumer has paused,
  // or its pace is not known yet (before three uses).
  std::optional<Nanoseconds> next_use;
  // The time of a copy by the fastest engine: Machine::copy_rates.
  std::optional<Nanoseconds> copy_time;
  // The time by which a use of the copy is shorter than one of the source: Node::access. If no CPU
  // addresses the source: the time of a copy, which each use would need. Negative: it is longer.
  std::optional<Nanoseconds> saved_per_use;
  // The least number of uses that together save the time of the copy. Nothing: unknown, or never.
  std::optional<std::uint64_t> uses_to_pay;
  std::string text;  // one line of all that
};

}  // namespace HEADRACE_API headrace
