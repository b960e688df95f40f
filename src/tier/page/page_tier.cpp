// SPDX-License-Identifier: Apache-2.0
#include "tier/page/page_tier.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/fail.h"
#include "core/thread.h"

namespace headrace {
namespace {

constexpr std::size_t kKeptDecisions = 1000;
constexpr unsigned kLongestBackOff = 64;  // steps

// Drops the last and coldest promotions, until `refused` bytes are saved.
void drop_coldest_in(std::vector<TierDecision>& decisions, Bytes refused) {
  for (std::size_t i = decisions.size(); i-- > 0 && refused.value > 0;) {
    if (!decisions[i].in) continue;
    refused -= std::min(refused, decisions[i].bytes);
    decisions.erase(decisions.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Bytes whole(double bytes) { return {static_cast<std::uint64_t>(std::min(bytes, 0x1p63))}; }

}  // namespace

Status PageTier::Inside::check(const PageTierOptions& options) {
  const TierPolicy& policy = options.policy;
  if (policy.budget.value == 0) {
    return fail(ErrorCode::invalid, "a budget of no bytes; say how much may stay in memory");
  }
  if (!(policy.hysteresis >= 0 && policy.hysteresis <= 1 && policy.least_heat >= 0 &&
        policy.least_heat <= 1)) {
    return fail(ErrorCode::invalid, "hysteresis {} and least heat {} are shares: give 0 to 1",
                policy.hysteresis, policy.least_heat);
  }
  if (!(options.guard >= 0 && options.guard < 1)) {
    return fail(ErrorCode::invalid,
                "guard {} is the share by which work may fall: give 0 (none) to below 1",
                options.guard);
  }
  if (policy.per_second.value == 0 || options.half_life.count() <= 0) {
    return fail(ErrorCode::invalid, "the rate and the half-life are more than 0");
  }
  if (options.fast.empty() != options.slow.empty()) {
    return fail(ErrorCode::invalid,
                "give fast nodes and slow ones, or neither to use swap as slow memory");
  }
  std::vector<NodeId> nodes = options.fast;
  nodes.insert(nodes.end(), options.slow.begin(), options.slow.end());
  std::ranges::sort(nodes);
  if (const auto twice = std::ranges::adjacent_find(nodes); twice != nodes.end()) {
    return fail(ErrorCode::invalid, "node {} is given twice; a node is fast or slow", raw(*twice));
  }
  if (options.least_interval < Nanoseconds{}) {
    return fail(ErrorCode::invalid, "a least interval of {} ns; give 0 or more",
                options.least_interval.count());
  }
  return {};
}

PageTier::Inside::Inside(const PageTierOptions& options, Kernel& kernel)
    : options_(options),
      kernel_(kernel),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      hotness_({.half_life = options.half_life, .chunk = options.chunk}),
      guard_(options.guard) {}

Result<std::unique_ptr<PageTier::Inside>> PageTier::Inside::open(const PageTierOptions& options,
                                                                 Kernel& kernel) {
  HEADRACE_TRY_STATUS(check(options));
  HEADRACE_TRY(
      auto source,
      open_hotness(HotnessKind::referenced,
                   {.chunk = options.chunk, .least_interval = {}, .clock = options.clock}, kernel));
  HEADRACE_TRY(auto slow, options.slow.empty() ? open_swap(kernel)
                                               : open_nodes(kernel, options.fast, options.slow));
  HEADRACE_TRY(auto inside, open(options, kernel, std::move(slow)));
  inside->source_ = std::move(source);
  return inside;
}

Result<std::unique_ptr<PageTier::Inside>> PageTier::Inside::open(const PageTierOptions& options,
                                                                 Kernel& kernel,
                                                                 std::unique_ptr<SlowMemory> slow) {
  HEADRACE_TRY_STATUS(check(options));
  std::unique_ptr<Inside> inside(new Inside(options, kernel));
  inside->slow_ = std::move(slow);
  return inside;
}

void PageTier::Inside::see(std::vector<Managed> ranges, const HotnessSample& sample) {
  const MutexLock lock(mutex_);
  std::erase_if(backed_off_, [&](const auto& each) {
    const auto range = std::ranges::upper_bound(ranges, each.first, {}, &Managed::end);
    return range == ranges.end() || each.first < range->begin;
  });
  ranges_ = std::move(ranges);
  hotness_.add(sample);
}

PageTier::Inside::Moved PageTier::Inside::moved() const {
  const MutexLock lock(mutex_);
  return moved_;
}

// Refuses memory whose pages cannot move or are not only this process's. The source checks for
// holes.
Result<PageTier::Inside::Managed> PageTier::Inside::managed(
    std::span<const std::byte> memory) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  Managed range{{begin, begin + memory.size()}, options_.chunk.value};
  std::string_view why;
  HEADRACE_TRY_STATUS(for_each_vma_in_detail(kernel_, [&](const Vma& vma) {
    if (vma.end <= range.begin || vma.begin >= range.end) return;
    if (vma.shared)
      why = "is shared with other mappings, which keep its pages";
    else if (vma.file != FileId{})
      why = "maps a file, whose pages are the kernel's to keep or drop";
    else if (vma.locked && !slow_->moves_any())
      why = "is locked (mlock), so that its pages stay; unlock it";
    else if (!vma.accessible && !slow_->moves_any())
      why = "has parts without access rights (PROT_NONE)";
    if (vma.huge) range.chunk = std::max(range.chunk, kernel_.huge_page().value);
  }));
  if (why.empty()) return range;
  return fail(ErrorCode::unsupported, "the memory {}; give private anonymous memory that may move",
              why);
}

Status PageTier::Inside::add(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  HEADRACE_TRY(const Managed range, managed(memory));
  ranges_.reserve(ranges_.size() + 1);
  HEADRACE_TRY_STATUS(source_->track(memory));
  ranges_.insert(std::ranges::upper_bound(ranges_, range.begin, {}, &Managed::begin), range);
  return {};
}

Status PageTier::Inside::remove(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(source_->untrack(memory));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::erase_if(ranges_, [&](const Managed& each) { return each.begin == begin; });
  hotness_.forget(memory);
  const auto removed = [&](const auto& each) {
    return each.first >= begin && each.first - begin < memory.size();
  };
  std::erase_if(backed_off_, removed);
  std::erase_if(were_in_, removed);
  return {};
}

// The last chunk of a range ends with it. Requires: an address in a range.
TrackedRange PageTier::Inside::chunk_at(std::uintptr_t begin) const {
  const auto range = std::ranges::upper_bound(ranges_, begin, {}, &Managed::begin) - 1;
  return {begin, std::min(range->end, (begin / range->chunk + 1) * range->chunk)};
}

// A unit that moves as a whole may span several chunks of heat.
double PageTier::Inside::heat_of(const TrackedRange& range) const {
  double sum = 0;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    const std::uintptr_t next =
        std::min(range.end, (at / options_.chunk.value + 1) * options_.chunk.value);
    sum += heat_of_managed(at / options_.chunk.value * options_.chunk.value) *
           static_cast<double>(next - at);
    at = next;
  }
  return sum / static_cast<double>(range.bytes().value);
}

// Hotness counts touches of the whole chunk, including its unmanaged part.
double PageTier::Inside::heat_of_managed(std::uintptr_t begin) const {
  const std::uintptr_t end = begin + options_.chunk.value;
  std::uint64_t managed = 0;
  for (auto range = std::ranges::upper_bound(ranges_, begin, {}, &Managed::end);
       range != ranges_.end() && range->begin < end; ++range) {
    managed += std::min(end, range->end) - std::max(begin, range->begin);
  }
  const double whole = hotness_.heat(reinterpret_cast<const void*>(begin));
  return std::min(1.0,
                  whole * static_cast<double>(options_.chunk.value) / static_cast<double>(managed));
}

Result<std::vector<ChunkPlace>> PageTier::Inside::places() const {
  std::vector<ChunkPlace> places;
  for (const Managed& range : ranges_) {
    for (std::uintptr_t at = range.begin; at < range.end; at = chunk_at(at).end) {
      HEADRACE_TRY(ChunkPlace place, slow_->place_of(chunk_at(at)));
      place.heat = heat_of(chunk_at(at));
      const auto back_off = backed_off_.find(at);
      place.backed_off = back_off != backed_off_.end() && back_off->second.left > 0;
      if (place.resident.value + place.out.value > 0) places.push_back(place);
    }
  }
  return places;
}

Bytes PageTier::Inside::largest_chunk() const {
  std::uint64_t chunk = options_.chunk.value;
  for (const Managed& range : ranges_) chunk = std::max(chunk, range.chunk);
  return {chunk};
}

TierPolicy PageTier::Inside::policy_for(std::span<const ChunkPlace> places) const {
  TierPolicy policy = options_.policy;
  if (auto most = slow_->room(largest_chunk())) {
    for (const ChunkPlace& place : places) *most += place.resident;
    policy.budget = std::min(policy.budget, *most);
  }
  return policy;
}

void PageTier::Inside::earn(Nanoseconds elapsed) {
  // The allowance may grow large enough for any swap of chunks, however low the rate: at most two
  // chunks are demoted for one promoted.
  const double rate = static_cast<double>(options_.policy.per_second.value);
  const double most = std::max(rate, 3 * static_cast<double>(largest_chunk().value));
  allowance_ = std::min(allowance_ + rate * std::clamp(seconds(elapsed), 0.0, 1.0), most);
}

void PageTier::Inside::back_off(std::uintptr_t chunk) {
  BackOff& back_off = backed_off_[chunk];
  back_off.length = std::clamp(2 * back_off.length, 1u, kLongestBackOff);
  // Plus one, because the current step counts it down at its end.
  back_off.left = back_off.length + 1;
}

Status PageTier::Inside::heat_up() {
  if (source_ == nullptr) return {};
  HEADRACE_TRY(const HotnessSample sample, source_->look());
  hotness_.add(sample);
  return {};
}

void PageTier::Inside::guard(TierStep& step, std::optional<std::uint64_t> work, Nanoseconds now) {
  const auto verdict = work ? guard_.hear(*work, now) : WorkGuard::Verdict::move;
  switch (verdict) {
    case WorkGuard::Verdict::undo:
      step.undone = fmt::format(
          "{:.4g} of work per second, {:.4g} while pages rested: the last moves of {} chunks are "
          "undone, and pages rest",
          guard_.lately(), guard_.at_rest(), were_in_.size());
      break;
    case WorkGuard::Verdict::rest:
      if (!resting_) were_in_.clear();
      break;
    case WorkGuard::Verdict::move:
      if (resting_ || !work || guard_.fresh()) were_in_.clear();
      break;
  }
  resting_ = verdict != WorkGuard::Verdict::move;
}

// Sets heats that leave decide() no choice: chunks to restore to fast memory are the hottest, those
// to return to slow memory the coldest, and no other chunk displaces one.
std::vector<TierDecision> PageTier::Inside::decide_now(
    const std::vector<ChunkPlace>& places) const {
  const TierPolicy policy = policy_for(places);
  if (!resting_) return decide(places, policy, whole(allowance_));
  std::vector<ChunkPlace> resting = places;
  for (ChunkPlace& place : resting) {
    const auto was = were_in_.find(place.begin);
    place.heat = was == were_in_.end() ? 0.25 + place.heat / 2 : was->second ? 1 : 0;
  }
  TierPolicy rest = policy;
  rest.hysteresis = 0.75;
  rest.least_heat = 0.9;
  std::vector<TierDecision> decisions = decide(resting, rest, whole(allowance_));
  for (TierDecision& each : decisions) {
    each.heat = std::ranges::lower_bound(places, each.begin, {}, &ChunkPlace::begin)->heat;
    if (were_in_.contains(each.begin)) each.reason = "undone by the guard";
  }
  return decisions;
}

Result<TierStep> PageTier::Inside::step(std::optional<std::uint64_t> work) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  const Nanoseconds now = clock_.now();
  const Nanoseconds elapsed = stepped_ ? now - *stepped_ : std::chrono::seconds{1};
  // After a clock was set back, the elapsed time is unknown.
  if (elapsed >= Nanoseconds{} && elapsed < options_.least_interval) {
    return fail(ErrorCode::exhausted,
                "the last step was {:.1f} ms ago; wait {:.1f} ms, or set a shorter least_interval",
                seconds(elapsed) * 1e3, seconds(options_.least_interval) * 1e3);
  }
  HEADRACE_TRY_STATUS(heat_up());
  stepped_ = now;
  earn(elapsed);
  HEADRACE_TRY(const std::vector<ChunkPlace> before, places());
  TierStep step;
  guard(step, work, now);
  step.decisions = decide_now(before);
  for (const ChunkPlace& place : before) {
    if (place.backed_off) step.backed_off += place.resident;
  }
  HEADRACE_TRY_STATUS(carry_out(step));
  for (auto& [chunk, back_off] : backed_off_) back_off.left -= back_off.left > 0 ? 1 : 0;
  HEADRACE_TRY(const std::vector<ChunkPlace> after, places());
  for (const ChunkPlace& place : after) {
    step.resident += place.resident;
    step.out += place.out;
  }
  return step;
}

Status PageTier::Inside::move(TierStep& step, bool in) {
  std::vector<TrackedRange> chunks;
  for (const TierDecision& each : step.decisions) {
    if (each.in == in) chunks.push_back(chunk_at(each.begin));
  }
  const Nanoseconds began = thread_cpu();
  HEADRACE_TRY_STATUS(slow_->move(chunks, in));
  moved_.cpu += thread_cpu() - began;
  for (const TierDecision& decision : step.decisions) {
    if (decision.in != in) continue;
    // place_of() then shows pages that the kernel refused.
    HEADRACE_TRY(const ChunkPlace place, slow_->place_of(chunk_at(decision.begin)));
    const Bytes refused = std::min(decision.bytes, decision.in ? place.out : place.resident);
    step.refused += refused;
    if (refused.value > 0) {
      back_off(decision.begin);
    } else {
      backed_off_.erase(decision.begin);
    }
    allowance_ -= static_cast<double>((decision.bytes - refused).value);
    if (!resting_) were_in_.try_emplace(decision.begin, !decision.in);
    (in ? moved_.in : moved_.out) += decision.bytes - refused;
    log_.push_back(decision);
    if (log_.size() > kKeptDecisions) log_.pop_front();
  }
  return {};
}

Status PageTier::Inside::carry_out(TierStep& step) {
  if (step.decisions.empty()) return {};
  HEADRACE_TRY_STATUS(move(step, false));
  drop_coldest_in(step.decisions, step.refused);
  HEADRACE_TRY_STATUS(move(step, true));
  // Touches by the move itself are not the program's; this look discards them.
  if (source_ != nullptr) HEADRACE_TRY_STATUS(source_->look());
  return {};
}

std::vector<TierDecision> PageTier::Inside::decisions() const {
  if (!origin_.here()) return {};
  const MutexLock lock(mutex_);
  return {log_.begin(), log_.end()};
}

Result<std::unique_ptr<PageTier>> PageTier::open(const PageTierOptions& options) {
  return no_throw([&]() -> Result<std::unique_ptr<PageTier>> {
    HEADRACE_TRY(auto inside, Inside::open(options, system_kernel()));
    return std::unique_ptr<PageTier>(new PageTier(std::move(inside)));
  });
}

PageTier::PageTier(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
PageTier::~PageTier() {
  if (inside_ != nullptr && !inside_->here()) abandon(std::move(inside_));
}
Status PageTier::add(std::span<const std::byte> memory) {
  return no_throw([&] { return inside_->add(memory); });
}
Status PageTier::remove(std::span<const std::byte> memory) {
  return no_throw([&] { return inside_->remove(memory); });
}
Result<TierStep> PageTier::step(std::optional<std::uint64_t> work) {
  return no_throw([&] { return inside_->step(work); });
}
std::vector<TierDecision> PageTier::decisions() const { return inside_->decisions(); }

}  // namespace headrace
