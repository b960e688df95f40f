// SPDX-License-Identifier: Apache-2.0
// Matches: find blocks and pin them.
#include "kvcache/core.h"

namespace headrace::kvcache {

Match StoreCore::match(std::span<const Key> keys) {
  Match match;
  if (!origin_.here()) return match;
  match.keys_.reserve(keys.size());
  match.tiers_.reserve(keys.size());
  const MutexLock lock(mutex_);
  if (closing_) return match;
  for (const Key& key : keys) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) break;
    const auto tier = found->second.fastest();
    if (!tier) break;
    pin(found->second);
    match.keys_.push_back(key);
    match.tiers_.push_back(*tier);
  }
  counts_.matched += match.keys_.size();
  counts_.missed += keys.size() - match.keys_.size();
  if (!match.keys_.empty()) match.core_ = this;
  return match;
}

void StoreCore::let_go(const Match& match) {
  if (!origin_.here()) return;
  Later later;
  const MutexLock lock(mutex_);
  if (matches_hold_nothing_) return;
  for (const Key& key : match.keys_) unpin(entries_.find(key)->second);
  place_pending(later);
}

}  // namespace headrace::kvcache
