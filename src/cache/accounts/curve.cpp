// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/curve.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "cache/structures/index.h"

namespace headrace {
namespace {

constexpr unsigned kSizes = 64;  // logarithms of a distance

}  // namespace

ReuseSample::ReuseSample(std::size_t keys)
    : most_(keys), tree_(4 * keys + 1), counts_(std::size_t{kSteps} * kSizes) {}

std::uint64_t ReuseSample::hash_of(const Extent& extent) {
  std::uint64_t hash = hash_secret();
  for (const std::uint64_t part : {raw(extent.object->id()), extent.offset, extent.length.value}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;  // as in the index (Fibonacci hashing)
    hash ^= hash >> 32;
  }
  return hash * 0xbf58476d1ce4e5b9;  // all bits count: the sample goes by the highest
}

double ReuseSample::share() const {
  constexpr double kAll = 18446744073709551616.0;
  return static_cast<double>(bound_.load()) / kAll;
}

void ReuseSample::see(std::uint64_t hash, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (hash > bound_.load()) return;
  if (turns_ + 1 == tree_.size()) renumber();
  const auto [at, is_new] = keys_.try_emplace(hash);
  Key& key = at->second;
  all_ += 1 / share();
  if (!is_new) {
    // Its own bytes count once, others' for all that were not sampled.
    const std::uint64_t since = bytes_ - bytes_until(key.turn);
    count(static_cast<double>(since) / share() + static_cast<double>(bytes));
  }
  move_to_end(key, bytes);
  if (keys_.size() > most_) drop_largest();
}

void ReuseSample::count(double distance) {
  const auto at = static_cast<std::size_t>(std::ceil(std::log2(distance) * kSteps));
  counts_[std::min(at, counts_.size() - 1)] += 1 / share();
}

void ReuseSample::move_to_end(Key& key, std::uint64_t bytes) {
  if (key.turn > 0) add(key.turn, -key.bytes);
  key = {.turn = ++turns_, .bytes = bytes};
  add(key.turn, bytes);
}

// Adds modulo 2^64: the negative of a number subtracts it.
void ReuseSample::add(std::size_t turn, std::uint64_t bytes) {
  bytes_ += bytes;
  for (; turn < tree_.size(); turn += turn & -turn) tree_[turn] += bytes;
}

std::uint64_t ReuseSample::bytes_until(std::size_t turn) const {
  std::uint64_t sum = 0;
  for (; turn > 0; turn -= turn & -turn) sum += tree_[turn];
  return sum;
}

// Gives the keys the turns 1, 2, ... in the order of their last access.
void ReuseSample::renumber() {
  std::vector<Key*> by_turn;
  by_turn.reserve(keys_.size());
  for (auto& [hash, key] : keys_) by_turn.push_back(&key);
  std::ranges::sort(by_turn, {}, &Key::turn);
  std::ranges::fill(tree_, 0);
  turns_ = bytes_ = 0;
  for (Key* key : by_turn) {
    key->turn = ++turns_;
    add(key->turn, key->bytes);
  }
}

// From now on fewer keys are sampled.
void ReuseSample::drop_largest() {
  const auto last = std::prev(keys_.end());
  add(last->second.turn, -last->second.bytes);
  bound_ = last->first - 1;
  keys_.erase(last);
}

// A sample with too many or too few accesses has lost or won hot keys, whose distances are short:
// the difference is corrected there (SHARDS-adj).
std::vector<CacheCurvePoint> ReuseSample::curve(std::uint64_t accesses) const {
  const MutexLock lock(mutex_);
  const auto all = static_cast<double>(accesses);
  std::vector<CacheCurvePoint> points;
  double hits = all - all_;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    hits += counts_[i];
    if (counts_[i] == 0) continue;
    points.push_back(
        {.budget = Bytes{static_cast<std::uint64_t>(std::exp2(static_cast<double>(i) / kSteps))},
         .misses = std::clamp(1 - hits / all, 0.0, 1.0)});
  }
  return points;
}

}  // namespace headrace
