// SPDX-License-Identifier: Apache-2.0
#include "tier/process/access_rates.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"

namespace headrace {
namespace {

// Prior of a chunk without observations: this part of a half-life, with this many touches.
constexpr double kPriorTime = 1.0 / 64;
constexpr double kPriorTouches = 1.0 / 1024;

}  // namespace

AccessRates::AccessRates(Bytes chunk, Nanoseconds half_life)
    : chunk_(chunk.value), half_life_(seconds(half_life)) {
  CHECK(std::has_single_bit(chunk_) && half_life.count() > 0);
}

void AccessRates::set_half_life(Nanoseconds half_life) {
  CHECK(half_life.count() > 0);
  half_life_ = seconds(half_life);
}

AccessRates::Region& AccessRates::region(std::uintptr_t address) {
  if (Region* const found = find(address)) return *found;
  found_key_ = address / (chunk_ * kChunks);
  found_ = (regions_[found_key_] = std::make_unique<Region>()).get();
  return *found_;
}

AccessRates::Region* AccessRates::find(std::uintptr_t address) const {
  const std::uint64_t key = address / (chunk_ * kChunks);
  if (key == found_key_) return found_;
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  found_key_ = key;
  return found_ = found->second.get();
}

double AccessRates::waiting(const Chunk& chunk, double now) {
  return chunk.since < 0 ? 0 : now - static_cast<double>(chunk.since);
}

void AccessRates::expose(Region& region, double now) {
  region.armed = now;
  for (Chunk& chunk : region.chunks) {
    if (chunk.pages.resident > 0 && chunk.since < 0 && static_cast<double>(chunk.last) < now) {
      chunk.since = static_cast<float>(now);
    }
  }
}

double AccessRates::kept(const Chunk& chunk, double now) const {
  return std::exp2((static_cast<double>(chunk.last) - now) / half_life_);
}

void AccessRates::account(Chunk& chunk, double now, double touches) {
  const double share = kept(chunk, now);
  chunk.exposed = static_cast<float>(chunk.exposed * share + waiting(chunk, now));
  chunk.touches = static_cast<float>(chunk.touches * share + touches);
  chunk.last = static_cast<float>(now);
  chunk.since = kHidden;
}

void AccessRates::touched(std::uintptr_t address, Nanoseconds at, bool was_out) {
  Region& where = region(address);
  Chunk& chunk = where.chunks[index(address)];
  const double now = seconds(at);
  where.told = at;
  if (!was_out && chunk.since == kReturned) {
    chunk.since = kHidden;
    return;
  }
  // New memory, and memory that came back unseen, prove nothing.
  if (!was_out && chunk.pages.resident > 0 && chunk.since < 0) expose(where, now);
  account(chunk, now, 1);
  if (was_out) chunk.since = kReturned;
}

void AccessRates::sampled(std::uintptr_t address, Nanoseconds at, Nanoseconds span,
                          double touches) {
  Region& where = region(address);
  Chunk& chunk = where.chunks[index(address)];
  const bool exposed = chunk.since >= 0;
  where.told = at;
  account(chunk, seconds(at), touches);
  chunk.exposed += static_cast<float>(seconds(span));
  if (exposed) chunk.since = chunk.last;
}

void AccessRates::went_out(std::uintptr_t address, Nanoseconds at) {
  Region& where = region(address);
  Chunk& chunk = where.chunks[index(address)];
  where.told = at;
  account(chunk, seconds(at), 0);
  chunk.since = chunk.last;
}

void AccessRates::passed(Nanoseconds since, Nanoseconds now) {
  for (auto& [key, region] : regions_) {
    if (region->armed < seconds(since)) expose(*region, seconds(now));
  }
}

double AccessRates::rate(std::uintptr_t address, Nanoseconds at) const {
  const double prior_time = half_life_ * kPriorTime;
  const Region* const where = find(address);
  if (where == nullptr) return kPriorTouches / prior_time;
  const Chunk& chunk = where->chunks[index(address)];
  const double now = seconds(at);
  const double share = kept(chunk, now);
  return (chunk.touches * share + kPriorTouches) /
         (chunk.exposed * share + waiting(chunk, now) + prior_time);
}

Nanoseconds AccessRates::last(std::uintptr_t address) const {
  const Region* const where = find(address);
  if (where == nullptr) return {};
  return Nanoseconds{static_cast<std::int64_t>(where->chunks[index(address)].last * 1e9)};
}

ChunkPages AccessRates::pages(std::uintptr_t address) const {
  const Region* const where = find(address);
  return where == nullptr ? ChunkPages{} : where->chunks[index(address)].pages;
}

void AccessRates::set_pages(std::uintptr_t address, ChunkPages pages, Nanoseconds at) {
  Region& where = region(address);
  Chunk& chunk = where.chunks[index(address)];
  if (chunk.pages.resident + chunk.pages.out == 0) chunk.last = static_cast<float>(seconds(at));
  // A chunk that is partly in swap is exposed too.
  if (pages.out > 0 && chunk.since < 0) chunk.since = static_cast<float>(seconds(at));
  chunk.pages = pages;
  where.told = at;
}

void AccessRates::forget_before(Nanoseconds since) {
  found_key_ = ~std::uint64_t{0};
  std::erase_if(regions_, [&](const auto& each) { return each.second->told < since; });
}

}  // namespace headrace
