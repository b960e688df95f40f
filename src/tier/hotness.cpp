// SPDX-License-Identifier: Apache-2.0
#include "headrace/tier/hotness.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"

namespace headrace {
namespace {

// Below this many entries cold ones are not dropped.
constexpr std::size_t kFewEntries = 1024;
// The heat twenty half-lives after a full touch.
constexpr double kCold = 1e-6;

}  // namespace

Hotness::Hotness(const HeatOptions& options)
    : half_life_(static_cast<double>(options.half_life.count())),
      chunk_(options.chunk.value),
      drop_at_(kFewEntries) {
  CHECK(options.half_life.count() > 0 && std::has_single_bit(chunk_));
}

double Hotness::now(const Entry& entry) const {
  return entry.heat * std::exp2(-static_cast<double>((time_ - entry.at).count()) / half_life_);
}

void Hotness::add(const HotnessSample& sample) {
  const Nanoseconds covered = std::max(sample.covered, Nanoseconds{});
  time_ += covered;
  const double weight = 1 - std::exp2(-static_cast<double>(covered.count()) / half_life_);
  for (const Touch& touch : sample.touches) warm(touch, weight);
  if (entries_.size() > drop_at_) drop_cold();
}

void Hotness::warm(const Touch& touch, double weight) {
  if (touch.range.empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(touch.range.data());
  const std::uintptr_t end = begin + touch.range.size();
  // When only a part of the bytes was touched, it is unknown which; all count evenly.
  const double share = static_cast<double>(touch.touched.value) /
                       static_cast<double>(touch.range.size()) * weight /
                       static_cast<double>(chunk_);
  for (std::uintptr_t at = begin; at < end;) {
    const std::uintptr_t next = std::min(end, (at / chunk_ + 1) * chunk_);
    Entry& entry = entries_[at / chunk_];
    entry = {now(entry) + share * static_cast<double>(next - at), time_};
    at = next;
  }
}

void Hotness::drop_cold() {
  std::erase_if(entries_, [this](const auto& each) { return now(each.second) < kCold; });
  drop_at_ = std::max(kFewEntries, 2 * entries_.size());
}

double Hotness::heat(const void* address) const {
  const auto found = entries_.find(reinterpret_cast<std::uintptr_t>(address) / chunk_);
  return found == entries_.end() ? 0 : now(found->second);
}

std::vector<HotChunk> Hotness::hottest() const {
  std::vector<HotChunk> chunks;
  chunks.reserve(entries_.size());
  for (const auto& [index, entry] : entries_) chunks.push_back({index * chunk_, now(entry)});
  std::ranges::sort(chunks, [](const HotChunk& a, const HotChunk& b) {
    return a.heat != b.heat ? a.heat > b.heat : a.begin < b.begin;
  });
  return chunks;
}

void Hotness::forget(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::erase_if(entries_, [&](const auto& each) {
    const std::uintptr_t at = each.first * chunk_;
    return at >= begin && at - begin < memory.size();
  });
}

}  // namespace headrace
