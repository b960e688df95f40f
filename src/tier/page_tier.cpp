#include "tier/page_tier.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"
#include "memory/memory.h"

namespace headrace {
namespace {

constexpr std::size_t kKeptDecisions = 1000;
constexpr unsigned kLongestBackOff = 64;  // steps
constexpr int kPopulateRead = 22;         // MADV_POPULATE_READ, Linux 5.14
// Documentation/admin-guide/mm/pagemap.rst
constexpr std::uint64_t kEntryPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kEntrySwapped = std::uint64_t{1} << 62;

std::uint64_t bytes_of_page() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

Status check(const PageTierOptions& options) {
  const TierPolicy& policy = options.policy;
  if (policy.budget.value == 0) {
    return fail(ErrorCode::invalid, "a budget of no bytes; say how much may stay in memory");
  }
  if (!(policy.hysteresis >= 0 && policy.hysteresis <= 1 && policy.least_heat >= 0 &&
        policy.least_heat <= 1)) {
    return fail(ErrorCode::invalid, "hysteresis {} and least heat {} are shares: give 0 to 1",
                policy.hysteresis, policy.least_heat);
  }
  if (policy.per_second.value == 0 || options.half_life.count() <= 0) {
    return fail(ErrorCode::invalid, "the rate and the half-life are more than 0");
  }
  if (options.least_interval < Nanoseconds{}) {
    return fail(ErrorCode::invalid, "a least interval of {} ns; give 0 or more",
                options.least_interval.count());
  }
  return {};
}

// Refuses memory whose pages would stay, or belong to others. Holes are the source's business.
Status check_movable(Kernel& kernel, const TrackedRange& range) {
  std::string_view why;
  HEADRACE_TRY_STATUS(for_each_vma_in_detail(kernel, [&](const Vma& vma) {
    if (vma.end <= range.begin || vma.begin >= range.end) return;
    if (vma.shared)
      why = "is shared with other mappings, which keep its pages";
    else if (vma.file != FileId{})
      why = "maps a file, whose pages are the kernel's to keep or drop";
    else if (vma.locked)
      why = "is locked (mlock), so that its pages stay; unlock it";
    else if (!vma.accessible)
      why = "has parts that nobody may access (PROT_NONE)";
  }));
  if (why.empty()) return {};
  return fail(ErrorCode::unsupported, "the memory {}; give private anonymous memory that may move",
              why);
}

Bytes whole(double bytes) { return {static_cast<std::uint64_t>(std::min(bytes, 0x1p63))}; }

}  // namespace

PageTier::Inside::Inside(const PageTierOptions& options, Kernel& kernel, OwnDescriptor pagemap)
    : options_(options),
      kernel_(kernel),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      pagemap_(std::move(pagemap)),
      hotness_({.half_life = options.half_life, .chunk = options.chunk}) {}

Result<std::unique_ptr<PageTier::Inside>> PageTier::Inside::open(const PageTierOptions& options,
                                                                 Kernel& kernel) {
  return no_throw([&] { return open_or_throw(options, kernel); });
}

Result<std::unique_ptr<PageTier::Inside>> PageTier::Inside::open_or_throw(
    const PageTierOptions& options, Kernel& kernel) {
  HEADRACE_TRY_STATUS(check(options));
  HEADRACE_TRY(
      auto source,
      open_hotness(HotnessKind::referenced,
                   {.chunk = options.chunk, .least_interval = {}, .clock = options.clock}, kernel));
  HEADRACE_TRY(OwnDescriptor pagemap, open_proc(kernel, "/proc/self/pagemap", O_RDONLY));
  std::unique_ptr<Inside> inside(new Inside(options, kernel, std::move(pagemap)));
  inside->source_ = std::move(source);
  HEADRACE_TRY_STATUS(inside->try_out());
  return inside;
}

Status PageTier::Inside::try_out() {
  auto mapped = MappedMemory::make({bytes_of_page()}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!mapped) return fail_errno(mapped.error(), "cannot map a page");
  *mapped->memory() = std::byte{1};
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped->memory());
  const auto end = begin + bytes_of_page();
  const int refused = kernel_.madvise(begin, bytes_of_page(), MADV_PAGEOUT);
  HEADRACE_TRY(ChunkPlace place, place_of(begin, end));
  if (place.out.value > 0) {
    HEADRACE_TRY_STATUS(bring_in(begin, end));
    HEADRACE_TRY(place, place_of(begin, end));
    if (place.out.value == 0) return {};
    return fail(ErrorCode::unsupported,
                "a page that was to come in stayed out: the kernel is older than 5.14");
  }
  if (refused == -EINVAL) {
    return fail(ErrorCode::unsupported,
                "the kernel pages nothing out for a process (MADV_PAGEOUT); it takes Linux 5.14");
  }
  const auto swaps = read_file("/proc/swaps");
  if (swaps && std::ranges::count(*swaps, '\n') <= 1) {
    return fail(ErrorCode::unsupported,
                "there is no swap, so that cold pages have nowhere to go; make some: a zram device "
                "or a swap file, see swapon(8)");
  }
  return fail(ErrorCode::unsupported,
              "a page that was to go out stayed: swap is full, or the cgroup allows none "
              "(memory.swap.max)");
}

Status PageTier::Inside::add_or_throw(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const TrackedRange range{begin, begin + memory.size()};
  HEADRACE_TRY_STATUS(check_movable(kernel_, range));
  ranges_.reserve(ranges_.size() + 1);
  HEADRACE_TRY_STATUS(source_->track(memory));
  ranges_.insert(std::ranges::upper_bound(ranges_, begin, {}, &TrackedRange::begin), range);
  return {};
}

Status PageTier::Inside::remove_or_throw(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(source_->untrack(memory));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::erase_if(ranges_, [&](const TrackedRange& each) { return each.begin == begin; });
  hotness_.forget(memory);
  std::erase_if(backed_off_, [&](const auto& each) {
    return each.first >= begin && each.first - begin < memory.size();
  });
  return {};
}

Status PageTier::Inside::read_pagemap(
    std::uintptr_t begin, std::uintptr_t end,
    const std::function<void(std::uintptr_t, std::uint64_t)>& each) const {
  const std::uint64_t page = bytes_of_page();
  std::array<std::uint64_t, 1024> entries;
  for (std::uintptr_t at = begin; at < end;) {
    const std::size_t count = std::min<std::size_t>(entries.size(), (end - at) / page);
    const std::size_t wanted = count * sizeof(std::uint64_t);
    const std::int64_t got =
        kernel_.pread(pagemap_.get(), entries.data(), wanted,
                      static_cast<std::int64_t>(at / page * sizeof(std::uint64_t)));
    if (got < 0) return fail_errno(static_cast<int>(-got), "/proc/self/pagemap");
    if (std::cmp_not_equal(got, wanted)) return fail(ErrorCode::io, "/proc/self/pagemap ended");
    for (std::size_t i = 0; i < count; ++i, at += page) each(at, entries[i]);
  }
  return {};
}

Result<ChunkPlace> PageTier::Inside::place_of(std::uintptr_t begin, std::uintptr_t end) const {
  const std::uint64_t page = bytes_of_page();
  ChunkPlace place{.begin = begin};
  HEADRACE_TRY_STATUS(read_pagemap(begin, end, [&](std::uintptr_t, std::uint64_t entry) {
    if ((entry & kEntryPresent) != 0) place.resident += {page};
    if ((entry & kEntrySwapped) != 0) place.out += {page};
  }));
  return place;
}

// The chunk ends with its range. Requires: an address in a range.
std::uintptr_t PageTier::Inside::end_of_chunk(std::uintptr_t begin) const {
  const auto range = std::ranges::upper_bound(ranges_, begin, {}, &TrackedRange::begin) - 1;
  return std::min(range->end, (begin / options_.chunk.value + 1) * options_.chunk.value);
}

Result<std::vector<ChunkPlace>> PageTier::Inside::places() const {
  std::vector<ChunkPlace> places;
  for (const TrackedRange& range : ranges_) {
    for (std::uintptr_t at = range.begin; at < range.end; at = end_of_chunk(at)) {
      HEADRACE_TRY(ChunkPlace place, place_of(at, end_of_chunk(at)));
      place.heat = hotness_.heat(reinterpret_cast<const void*>(at));
      const auto back_off = backed_off_.find(at);
      place.backed_off = back_off != backed_off_.end() && back_off->second.left > 0;
      if (place.resident.value + place.out.value > 0) places.push_back(place);
    }
  }
  return places;
}

Result<Bytes> PageTier::Inside::carry_out(const TierDecision& decision) {
  const std::uintptr_t begin = decision.begin;
  const std::uintptr_t end = end_of_chunk(begin);
  // What the kernel refuses shows in what is where afterwards.
  if (decision.in) {
    HEADRACE_TRY_STATUS(bring_in(begin, end));
  } else {
    (void)kernel_.madvise(begin, end - begin, MADV_PAGEOUT);
  }
  HEADRACE_TRY(const ChunkPlace place, place_of(begin, end));
  return std::min(decision.bytes, decision.in ? place.out : place.resident);
}

// Only what is in swap: a page that has never been there would be made by populating it.
Status PageTier::Inside::bring_in(std::uintptr_t begin, std::uintptr_t end) {
  (void)kernel_.madvise(begin, end - begin, MADV_WILLNEED);
  const std::uint64_t page = bytes_of_page();
  TrackedRange swapped;
  const auto populate = [&] {
    if (swapped.begin == swapped.end) return;
    (void)kernel_.madvise(swapped.begin, swapped.bytes().value, kPopulateRead);
  };
  HEADRACE_TRY_STATUS(read_pagemap(begin, end, [&](std::uintptr_t at, std::uint64_t entry) {
    if ((entry & kEntrySwapped) == 0) return;
    if (swapped.end != at) {
      populate();
      swapped.begin = at;
    }
    swapped.end = at + page;
  }));
  populate();
  return {};
}

void PageTier::Inside::earn(Nanoseconds elapsed) {
  // A chunk for others can move in the end, however slow the rate: two go out for it at most.
  const double rate = static_cast<double>(options_.policy.per_second.value);
  const double most = std::max(rate, 3 * static_cast<double>(options_.chunk.value));
  allowance_ = std::min(allowance_ + rate * std::clamp(seconds(elapsed), 0.0, 1.0), most);
}

void PageTier::Inside::back_off(std::uintptr_t chunk) {
  BackOff& back_off = backed_off_[chunk];
  back_off.length = std::clamp(2 * back_off.length, 1u, kLongestBackOff);
  // The step that ends now counts one down.
  back_off.left = back_off.length + 1;
}

Status PageTier::Inside::heat_up() {
  HEADRACE_TRY(const HotnessSample sample, source_->look());
  hotness_.add(sample);
  return {};
}

Result<TierStep> PageTier::Inside::step_or_throw() {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  const Nanoseconds now = clock_.now();
  const Nanoseconds elapsed = stepped_ ? now - *stepped_ : std::chrono::seconds{1};
  // A clock that was set back tells nothing of the time since.
  if (elapsed >= Nanoseconds{} && elapsed < options_.least_interval) {
    return fail(ErrorCode::exhausted,
                "the last step was {:.1f} ms ago; wait {:.1f} ms, or set a shorter least_interval",
                seconds(elapsed) * 1e3, seconds(options_.least_interval) * 1e3);
  }
  HEADRACE_TRY_STATUS(heat_up());
  stepped_ = now;
  earn(elapsed);
  HEADRACE_TRY(const std::vector<ChunkPlace> before, places());
  TierStep step{.decisions = decide(before, options_.policy, whole(allowance_))};
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

Status PageTier::Inside::carry_out(TierStep& step) {
  bool any_in = false;
  for (const TierDecision& decision : step.decisions) {
    HEADRACE_TRY(const Bytes refused, carry_out(decision));
    step.refused += refused;
    if (refused.value > 0) {
      back_off(decision.begin);
    } else {
      backed_off_.erase(decision.begin);
    }
    allowance_ -= static_cast<double>((decision.bytes - refused).value);
    any_in = any_in || decision.in;
    log_.push_back(decision);
    if (log_.size() > kKeptDecisions) log_.pop_front();
  }
  // What was touched to bring it in is no use of the program.
  if (any_in) HEADRACE_TRY_STATUS(source_->look());
  return {};
}

Status PageTier::Inside::add(std::span<const std::byte> memory) {
  return no_throw([&] { return add_or_throw(memory); });
}
Status PageTier::Inside::remove(std::span<const std::byte> memory) {
  return no_throw([&] { return remove_or_throw(memory); });
}
Result<TierStep> PageTier::Inside::step() {
  return no_throw([&] { return step_or_throw(); });
}

std::vector<TierDecision> PageTier::Inside::decisions() const {
  if (!origin_.here()) return {};
  const MutexLock lock(mutex_);
  return {log_.begin(), log_.end()};
}

Result<std::unique_ptr<PageTier>> PageTier::open(const PageTierOptions& options) {
  HEADRACE_TRY(auto inside, Inside::open(options, system_kernel()));
  return no_throw([&]() -> Result<std::unique_ptr<PageTier>> {
    return std::unique_ptr<PageTier>(new PageTier(std::move(inside)));
  });
}

PageTier::PageTier(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
PageTier::~PageTier() {
  if (inside_ != nullptr && !inside_->here()) abandon(std::move(inside_));
}
Status PageTier::add(std::span<const std::byte> memory) { return inside_->add(memory); }
Status PageTier::remove(std::span<const std::byte> memory) { return inside_->remove(memory); }
Result<TierStep> PageTier::step() { return inside_->step(); }
std::vector<TierDecision> PageTier::decisions() const { return inside_->decisions(); }

}  // namespace headrace
