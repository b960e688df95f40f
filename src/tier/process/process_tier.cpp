// SPDX-License-Identifier: Apache-2.0
#include "tier/process/process_tier.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "core/fail.h"
#include "core/thread.h"

namespace headrace {
namespace {

constexpr std::size_t kKeptDecisions = 1000;
constexpr std::size_t kEntriesAtOnce = 8192;
// Maximum cost of surveys: of the program's CPU time, and of a core when no candidates are left.
constexpr double kSurveyShare = 0.01;
constexpr double kHastyShare = 0.05;
constexpr Nanoseconds kLeastBetweenSurveys = std::chrono::seconds{1};
constexpr Nanoseconds kMostBetweenSurveys = std::chrono::minutes{5};
// Time of observation before the first demotion, as base of the guard.
constexpr Nanoseconds kBefore = std::chrono::seconds{2};
constexpr Nanoseconds kGuardSpan = std::chrono::milliseconds{500};
constexpr Nanoseconds kUndoes = std::chrono::seconds{10};
constexpr std::size_t kMostUndone = 65536;
constexpr Nanoseconds kFirstPause = std::chrono::minutes{1};
constexpr Nanoseconds kLongestPause = std::chrono::hours{1};
constexpr Bytes kNoBudget{std::numeric_limits<std::uint64_t>::max()};
constexpr std::size_t kFewestCandidates = 8192;
constexpr std::ptrdiff_t kMostCandidates = 1 << 20;
constexpr std::size_t kInAtOnce = 256;
constexpr Bytes kLeastSwap = 16_MiB;
// Demotions by a limit must find swap space until the next step, which lifts the limit.
constexpr Bytes kLeastSwapHeld = 256_MiB;
constexpr double kHorizon = 10;  // s
constexpr Nanoseconds kLeastHalfLife = std::chrono::seconds{15};
constexpr Nanoseconds kLongestHalfLife = std::chrono::hours{1};
constexpr Nanoseconds kReturnsSpan = std::chrono::seconds{10};
constexpr Bytes kPart = 4_MiB;  // bytes moved between two checks of the limit

// Adds the CPU time of a scope.
class Timed {
 public:
  explicit Timed(Nanoseconds& sum) : sum_(sum), since_(thread_cpu()) {}
  ~Timed() { sum_ += thread_cpu() - since_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Nanoseconds& sum_;
  const Nanoseconds since_;
};

// Keeps the `count` coldest, or hottest, elements, the extreme one last.
template <class Order>
void keep_extreme(auto& all, std::size_t count, Order order) {
  if (all.size() > count) {
    std::ranges::nth_element(all, all.end() - static_cast<std::ptrdiff_t>(count), order);
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(count));
  }
  std::ranges::sort(all, order);
}

}  // namespace

double heat_of(double rate) { return 1 - std::exp(-rate * kHorizon); }

ProcessSwap::ProcessSwap(std::unique_ptr<OtherProcess> process, const ProcessTierOptions& options,
                         ProcessTierStart start, const ProcessState& state)
    : Inside(std::move(process), options, std::move(start), state),
      page_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))),
      rates_(options.chunk, half_life_of(options)),
      guard_(options.guard, kGuardSpan),
      budget_(options.policy.budget),
      pause_(kFirstPause) {}

Result<std::unique_ptr<ProcessSwap>> ProcessSwap::open(std::unique_ptr<OtherProcess> process,
                                                       const ProcessTierOptions& options,
                                                       ProcessTierStart start) {
  HEADRACE_TRY(const ProcessState state, process->state());
  ProcessTierOptions with = options;
  // Demoting a part of a huge page splits the page, and no fault shows that the rest became slower.
  const bool huge = process->huge() * 2 >= state.resident && state.resident > Bytes{};
  with.chunk = chunk_for(std::max(state.resident * 2, options.policy.budget * 4),
                         huge ? std::max(options.chunk, start.huge_page) : options.chunk);
  std::unique_ptr<ProcessSwap> inside(
      new ProcessSwap(std::move(process), with, std::move(start), state));
  // Without perf, surveys find returned pages.
  inside->listens_ = inside->process_->listen().has_value();
  return inside;
}

// Faults

Status ProcessSwap::listen() {
  HEADRACE_TRY_STATUS(process_->listen());
  const bool heard = unheard_.empty();
  unheard_ = process_->unheard();
  if (heard && !unheard_.empty()) step_.note = unheard_;
  return {};
}

void ProcessSwap::take_faults() {
  if (!listens_) return;
  faults_.clear();
  totals_.lost += process_->take_faults(faults_);
  for (const PageFault& fault : faults_) take_fault(fault);
}

void ProcessSwap::take_fault(const PageFault& fault) {
  const auto after = std::ranges::upper_bound(memory_, fault.address, {}, &TrackedRange::begin);
  if (after == memory_.begin() || std::prev(after)->end <= fault.address) return;
  const std::uintptr_t chunk = rates_.chunk_of(fault.address);
  ChunkPages pages = rates_.pages(chunk);
  const bool was_out = fault.major || (pages.resident == 0 && pages.out > 0);
  rates_.touched(chunk, now(), was_out);
  if (was_out && pages.out > 0) {
    returned_.push_back(chunk);
    --pages.out;
    ++pages.resident;
    out_ -= Bytes{page_};
    resident_ += Bytes{page_};
    step_.returned += Bytes{page_};
  } else if (pages.resident == 0) {
    ++pages.resident;
    resident_ += Bytes{page_};
  } else {
    return;
  }
  rates_.set_pages(chunk, pages, now());
}

void ProcessSwap::note_samples(std::uintptr_t begin, Nanoseconds surveyed) {
  if (start_.sampler == nullptr) return;
  const auto region = std::ranges::upper_bound(samples_, begin, {}, &SampledRegion::end);
  const double share = region != samples_.end() && region->begin <= begin ? region->share : 0;
  const Nanoseconds span = start_.sampler->span();
  const auto samples = static_cast<double>(span / start_.sampler->sample());
  rates_.sampled(begin, surveyed, span, share * samples);
}

void ProcessSwap::note_round() {
  const auto rounds = process_->hint_rounds();
  if (rounds_ && rounds && *rounds != *rounds_) {
    // Meanwhile the kernel has removed all entries since the round began.
    if (round_began_) rates_.passed(*round_began_, now());
    round_began_ = now();
  }
  rounds_ = rounds;
}

void ProcessSwap::try_hints() {
  if (start_.hints || !start_.hints_later || state_.threads < 2 || !listens_) return;
  auto hints = std::exchange(start_.hints_later, {})();
  start_.why = hints ? hints->note() : "no hint faults: " + hints.error().message;
  if (!hints && options_.source) step_.note = start_.why;
  if (hints) start_.hints.emplace(*std::move(hints));
  if (start_.hold) start_.why += "; " + start_.hold->note();
}

// Surveys

bool ProcessSwap::hotter(const Candidate& a, const Candidate& b) {
  return a.rate != b.rate ? a.rate > b.rate : a.begin > b.begin;
}

// Memory appeared or left without a fault: by the program or by the kernel.
bool ProcessSwap::is_elsewhere() const {
  const auto known = static_cast<double>(resident_.value);
  const double there = static_cast<double>(state_.resident.value) - beside_;
  return std::abs(there - known) > std::max(known / 8, 16.0 * (1 << 20));
}

bool ProcessSwap::survey_due() const {
  if (!surveyed_) return true;
  const Nanoseconds since = now() - *surveyed_;
  const double cost = seconds(survey_cost_);
  if (exhausted_) return seconds(since) >= cost / kHastyShare;
  if (since < kLeastBetweenSurveys) return false;
  if (is_elsewhere()) return seconds(since) >= cost / kHastyShare;
  return since >= kMostBetweenSurveys ||
         cost <= seconds(state_.cpu - cpu_at_survey_) * kSurveyShare;
}

Status ProcessSwap::survey() {
  const Nanoseconds began = now();
  {
    const Timed timed(survey_cost_ = {});
    if (listens_) HEADRACE_TRY_STATUS(listen());
    if (start_.sampler != nullptr) {
      HEADRACE_TRY(samples_, start_.sampler->look());
    }
    take_faults();
    HEADRACE_TRY(memory_, process_->memory());
    const Bytes gone = totals_.went_out;
    resident_ = out_ = stayed_ = {};
    coldest_.clear();
    returned_.clear();
    hottest_.clear();
    for (const TrackedRange& range : memory_) HEADRACE_TRY_STATUS(survey_range(range, began));
    rates_.forget_before(began);
    // Twice the demotions since the last survey, plus the present excess.
    std::size_t count = kFewestCandidates + 2 * ((gone - gone_) / options_.chunk);
    gone_ = gone;
    if (resident_ > budget_) count += (resident_ - budget_) / options_.chunk;
    keep_extreme(coldest_, count, hotter);
    keep_extreme(hottest_, kFewestCandidates, [](const Candidate& a, const Candidate& b) {
      return a.rate != b.rate ? a.rate < b.rate : a.begin > b.begin;
    });
  }
  surveyed_ = now();
  cpu_at_survey_ = state_.cpu;
  beside_ = static_cast<double>(state_.resident.value) - static_cast<double>(resident_.value);
  step_.surveyed = true;
  step_.refused = stayed_;
  return {};
}

Status ProcessSwap::survey_range(const TrackedRange& range, Nanoseconds surveyed) {
  const std::uint64_t chunk_pages = options_.chunk.value / page_;
  std::vector<std::uint64_t> entries;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    const std::uintptr_t part =
        rates_.chunk_of(at) +
        options_.chunk.value * std::max<std::uint64_t>(1, kEntriesAtOnce / chunk_pages);
    const std::uintptr_t end = std::min(part, range.end);
    entries.resize((end - at) / page_);
    HEADRACE_TRY_STATUS(process_->entries(at, entries));
    look_at_limit();
    ChunkPages found;
    for (const std::uint64_t entry : entries) {
      if ((entry & kPageShared) == 0) {
        if ((entry & kPagePresent) != 0) {
          // The kernel does not page out pages that two processes share after fork().
          if ((entry & kPageExclusive) != 0) ++found.resident;
        } else if ((entry & kPageSwapped) != 0) {
          ++found.out;
        }
      }
      at += page_;
      if (at == end || at % options_.chunk.value == 0) {
        survey_chunk(rates_.chunk_of(at - page_), found, surveyed);
        found = {};
      }
    }
  }
  return {};
}

void ProcessSwap::survey_chunk(std::uintptr_t begin, ChunkPages found, Nanoseconds surveyed) {
  const ChunkPages known = rates_.pages(begin);
  if (found.resident + found.out + known.resident + known.out == 0) return;
  if (known.out > found.out && found.resident > known.resident) {
    // It returned without a reported fault: it refused to move, or faults are not heard.
    rates_.touched(begin, surveyed, true);
    if (listens_ && unheard_.empty()) stayed_ += Bytes{page_} * (found.resident - known.resident);
  }
  rates_.set_pages(begin, found, surveyed);
  if (found.resident > 0) note_samples(begin, surveyed);
  resident_ += Bytes{page_} * found.resident;
  out_ += Bytes{page_} * found.out;
  const double rate = rates_.rate(begin, surveyed);
  if (found.resident > 0) coldest_.push_back({rate, begin, rates_.last(begin)});
  if (found.out > 0 && heat_of(rate) >= options_.policy.least_heat) {
    hottest_.push_back({rate, begin, {}});
  }
}

// Most returned pages are as cold as other resident ones.
void ProcessSwap::offer_returned() {
  const auto all = static_cast<std::ptrdiff_t>(coldest_.size());
  for (const std::uintptr_t chunk : returned_) {
    const double rate = rates_.rate(chunk, now());
    if (all > 0 && rate <= coldest_.front().rate) {
      coldest_.push_back({rate, chunk, rates_.last(chunk)});
    }
  }
  returned_.clear();
  std::sort(coldest_.begin() + all, coldest_.end(), hotter);
  std::inplace_merge(coldest_.begin(), coldest_.begin() + all, coldest_.end(), hotter);
  // Drops the hottest of too many candidates.
  if (std::ssize(coldest_) > kMostCandidates) {
    coldest_.erase(coldest_.begin(), coldest_.end() - kMostCandidates / 2);
  }
}

// Decisions and moves

std::vector<ChunkPlace> ProcessSwap::candidates(Bytes budget) {
  std::vector<ChunkPlace> places;
  const auto place = [&](std::uintptr_t begin) {
    const ChunkPages pages = rates_.pages(begin);
    places.push_back({.begin = begin,
                      .resident = Bytes{page_} * pages.resident,
                      .out = Bytes{page_} * pages.out,
                      .heat = heat_of(rates_.rate(begin, now()))});
  };
  const auto still = [&](const Candidate& each, bool out) {
    const ChunkPages pages = rates_.pages(each.begin);
    return out ? pages.out > 0 : pages.resident > 0 && rates_.last(each.begin) == each.last;
  };
  Bytes wanted;
  for (std::size_t i = 0; i < kInAtOnce && !hottest_.empty(); ++i) {
    const Candidate each = hottest_.back();
    hottest_.pop_back();
    if (!still(each, true)) continue;
    place(each.begin);
    wanted += places.back().out;
  }
  if (resident_ > budget) wanted += resident_ - budget;
  Bytes found;
  std::vector<Candidate> kept;
  while (found < wanted && !coldest_.empty()) {
    const Candidate each = coldest_.back();
    coldest_.pop_back();
    if (!still(each, false)) continue;
    const bool there = std::ranges::any_of(
        places.begin(),
        places.begin() + static_cast<std::ptrdiff_t>(std::min(places.size(), kInAtOnce)),
        [&](const ChunkPlace& other) { return other.begin == each.begin; });
    if (!there) place(each.begin);
    found += Bytes{page_} * rates_.pages(each.begin).resident;
    kept.push_back(each);
  }
  exhausted_ = found < wanted;
  // Chunks that do not move now are offered again.
  coldest_.insert(coldest_.end(), kept.rbegin(), kept.rend());
  return places;
}

void ProcessSwap::moved(std::uintptr_t begin, bool in) {
  const ChunkPages pages = rates_.pages(begin);
  const auto all = static_cast<std::uint16_t>(pages.resident + pages.out);
  const Bytes bytes = Bytes{page_} * (in ? pages.out : pages.resident);
  if (in) {
    rates_.set_pages(begin, {.resident = all, .out = 0}, now());
    resident_ += bytes;
    out_ -= bytes;
    step_.came_in += bytes;
  } else {
    rates_.went_out(begin, now());
    rates_.set_pages(begin, {.resident = 0, .out = all}, now());
    resident_ -= bytes;
    out_ += bytes;
    step_.went_out += bytes;
  }
}

Status ProcessSwap::page_out(std::vector<TrackedRange> ranges) {
  if (ranges.empty()) return {};
  std::ranges::sort(ranges, {}, &TrackedRange::begin);
  std::vector<TrackedRange> joined;
  for (const TrackedRange& each : ranges) {
    if (!joined.empty() && joined.back().end == each.begin && joined.back().bytes() < kPart) {
      joined.back().end = each.end;
    } else {
      joined.push_back(each);
    }
  }
  const Timed timed(totals_.mover_cpu);
  Bytes bytes;
  for (std::span<TrackedRange> rest(joined); !rest.empty(); bytes = {}) {
    std::size_t count = 0;
    while (count < rest.size() && bytes < kPart) bytes += rest[count++].bytes();
    HEADRACE_TRY_STATUS(process_->page_out(rest.first(count)));
    rest = rest.subspan(count);
    look_at_limit();
  }
  return {};
}

Status ProcessSwap::bring_in(const std::vector<std::uintptr_t>& chunks) {
  if (chunks.empty()) return {};
  std::vector<std::uintptr_t> pages;
  for (const std::uintptr_t chunk : chunks) {
    for (std::uintptr_t at = chunk; at < range_of(chunk).end; at += page_) pages.push_back(at);
  }
  const Timed timed(totals_.mover_cpu);
  for (std::span<const std::uintptr_t> rest(pages); !rest.empty();) {
    const auto part = rest.first(std::min<std::size_t>(rest.size(), kPart.value / page_));
    HEADRACE_TRY_STATUS(process_->bring_in(part));
    rest = rest.subspan(part.size());
    look_at_limit();
  }
  return {};
}

Status ProcessSwap::carry_out(std::vector<TierDecision> decisions) {
  std::vector<TrackedRange> out;
  std::vector<std::uintptr_t> in;
  std::vector<std::uintptr_t> sent;
  for (TierDecision& decision : decisions) {
    if (decision.in) {
      in.push_back(decision.begin);
    } else {
      out.push_back(range_of(decision.begin));
      sent.push_back(decision.begin);
    }
    allowance_ -= std::min(allowance_, decision.bytes);
  }
  // Demotions first: they free memory.
  HEADRACE_TRY_STATUS(page_out(std::move(out)));
  HEADRACE_TRY_STATUS(bring_in(in));
  for (TierDecision& decision : decisions) {
    moved(decision.begin, decision.in);
    log_.push_back(std::move(decision));
    if (log_.size() > kKeptDecisions) log_.pop_front();
  }
  if (!sent.empty()) sent_out_.emplace_back(now(), std::move(sent));
  while (!sent_out_.empty() && sent_out_.front().first + kUndoes < now()) sent_out_.pop_front();
  return {};
}

Status ProcessSwap::undo() {
  std::vector<std::uintptr_t> back;
  for (auto lot = sent_out_.rbegin(); lot != sent_out_.rend(); ++lot) {
    for (const std::uintptr_t chunk : lot->second) {
      if (back.size() < kMostUndone && rates_.pages(chunk).out > 0) back.push_back(chunk);
    }
  }
  sent_out_.clear();
  std::ranges::sort(back);
  back.erase(std::unique(back.begin(), back.end()), back.end());
  HEADRACE_TRY_STATUS(bring_in(back));
  for (const std::uintptr_t chunk : back) {
    log_.push_back({chunk, true, Bytes{page_} * rates_.pages(chunk).out,
                    heat_of(rates_.rate(chunk, now())), "undone by the guard"});
    if (log_.size() > kKeptDecisions) log_.pop_front();
    moved(chunk, true);
  }
  return {};
}

// Evidence is worth more the fewer pages change places. Where values move from page to page, as in
// a server that writes, old evidence is about other values. There an LRU list, which remembers one
// pass over its memory, would do better than two minutes of history.
void ProcessSwap::set_half_life() {
  if (options_.half_life != Nanoseconds{0}) return;
  returned_since_ += step_.returned;
  const double span = seconds(now() - counted_);
  if (span < seconds(kReturnsSpan)) return;
  const double rate = static_cast<double>(returned_since_.value) / span;
  return_rate_ = return_rate_ == 0 ? rate : (return_rate_ + rate) / 2;
  const double all =
      static_cast<double>(options_.policy.budget.value) / std::max(return_rate_, 1.0);
  const double bounded = std::clamp(all, seconds(kLeastHalfLife), seconds(kLongestHalfLife));
  rates_.set_half_life(Nanoseconds{static_cast<std::int64_t>(bounded * 1e9)});
  returned_since_ = {};
  counted_ = now();
}

Status ProcessSwap::guard() {
  if (budget_ == kNoBudget && now() >= again_at_) budget_ = options_.policy.budget;
  const bool worse = guard_.worse(state_.cpu - first_.cpu, totals_.major_faults, start_.of_fault);
  if (!guard_.before() && now() >= kBefore) {
    // For an idle program, uses its whole past.
    const double cpu = seconds(first_.cpu);
    guard_.begin(cpu > 0 ? static_cast<double>(first_.major_faults) * seconds(start_.of_fault) / cpu
                         : 0);
  }
  // The kernel demotes the memory that a cgroup holds.
  if (!worse || (sent_out_.empty() && !start_.hold)) return {};
  const Bytes before = step_.came_in;
  budget_ = kNoBudget;
  hold(true);  // otherwise other pages are demoted for those that return
  HEADRACE_TRY_STATUS(undo());
  ++totals_.undone;
  again_at_ = now() + pause_;
  step_.undone = fmt::format(
      "major faults take {:.1f} % of the program's CPU time, {:.1f} % before: {} brought back, and "
      "nothing goes out for {:.0f} s",
      guard_.now() * 100, *guard_.before() * 100, to_string(step_.came_in - before),
      seconds(pause_));
  pause_ = std::min(pause_ * 2, kLongestPause);
  return {};
}

void ProcessSwap::hold(bool may) {
  if (!start_.hold) return;
  held_ = now();
  bool held = may && begun() && budget_ != kNoBudget;
  if (held && process_->swap_free() < std::max(kLeastSwapHeld, options_.policy.per_second)) {
    held = false;
    step_.note = fmt::format("the cgroup holds the process again when {} of swap are free",
                             to_string(std::max(kLeastSwapHeld, options_.policy.per_second)));
  }
  const Status kept = start_.hold->keep(held ? std::optional(budget_) : std::nullopt);
  if (kept) return;
  if (kept.error().code != ErrorCode::absent) step_.note = kept.error().message;
  start_.hold.reset();
}

Status ProcessSwap::work() {
  take_faults();
  set_half_life();
  note_round();
  try_hints();
  if (survey_due()) HEADRACE_TRY_STATUS(survey());
  HEADRACE_TRY_STATUS(guard());
  hold(true);
  const Bytes rate = options_.policy.per_second;
  const double earned = static_cast<double>(rate.value) * std::min(seconds(now() - stepped_), 1.0);
  stepped_ = now();
  allowance_ = std::min(allowance_ + Bytes{static_cast<std::uint64_t>(earned)},
                        std::max(rate, options_.chunk * 2));
  if (!begun()) return {};
  if (resident_ > budget_ && process_->swap_free() < kLeastSwap) {
    step_.note = "swap is full: nothing goes out";
    return {};
  }
  // The expected returns until the next step, as many as since the last, must fit too.
  expected_ = (expected_ + step_.returned) / 2;
  TierPolicy policy = options_.policy;
  policy.budget = budget_ == kNoBudget ? kNoBudget : budget_ - std::min(budget_, expected_);
  offer_returned();
  std::vector<ChunkPlace> places = candidates(policy.budget);
  if (exhausted_ && !step_.surveyed && survey_due()) {
    HEADRACE_TRY_STATUS(survey());
    places = candidates(policy.budget);
  }
  Bytes among;
  for (const ChunkPlace& place : places) among += place.resident;
  // Memory that is no candidate stays.
  const Bytes others = resident_ - std::min(resident_, among);
  policy.budget -= std::min(policy.budget, others);
  HEADRACE_TRY_STATUS(carry_out(decide(places, policy, allowance_)));
  totals_.went_out += step_.went_out;
  totals_.came_in += step_.came_in;
  return {};
}

}  // namespace headrace
