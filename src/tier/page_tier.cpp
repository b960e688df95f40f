#include "tier/page_tier.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"
#include "memory/memory.h"

namespace headrace {
namespace {

constexpr std::size_t kKeptDecisions = 1000;
constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14
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
  return {};
}

}  // namespace

PageTier::Inside::Inside(const PageTierOptions& options, Kernel& kernel, OwnDescriptor pagemap)
    : options_(options),
      kernel_(kernel),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      pagemap_(std::move(pagemap)),
      hotness_({.half_life = options.half_life, .chunk = options.chunk}) {}

Result<std::unique_ptr<PageTier::Inside>> PageTier::Inside::open(const PageTierOptions& options,
                                                                 Kernel& kernel) {
  HEADRACE_TRY_STATUS(check(options));
  HEADRACE_TRY(
      auto source,
      open_hotness(HotnessKind::referenced,
                   {.chunk = options.chunk, .least_interval = {}, .clock = options.clock}, kernel));
  const int pagemap = kernel.open("/proc/self/pagemap", O_RDONLY);
  if (pagemap < 0) return fail_errno(-pagemap, "cannot open /proc/self/pagemap");
  std::unique_ptr<Inside> inside(new Inside(options, kernel, OwnDescriptor(pagemap)));
  inside->source_ = std::move(source);
  HEADRACE_TRY_STATUS(inside->try_out());
  return inside;
}

Status PageTier::Inside::try_out() {
  auto mapped = MappedMemory::make({bytes_of_page()}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!mapped) return fail_errno(mapped.error(), "cannot map a page");
  *mapped->memory() = std::byte{1};
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped->memory());
  const int error = kernel_.madvise(begin, bytes_of_page(), MADV_PAGEOUT);
  HEADRACE_TRY(const ChunkPlace place, place_of(begin, begin + bytes_of_page()));
  if (error == 0 && place.out.value > 0) return {};
  const auto swaps = read_file("/proc/swaps");
  if (swaps && std::ranges::count(*swaps, '\n') <= 1) {
    return fail(ErrorCode::unsupported,
                "there is no swap, so that cold pages have nowhere to go; make some: a zram device "
                "or a swap file, see swapon(8)");
  }
  return fail(ErrorCode::unsupported,
              "a page that was to go out stayed: swap is full, or the cgroup allows none "
              "(memory.swap.max), or the kernel is older than 5.4");
}

Status PageTier::Inside::add(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(source_->track(memory));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const TrackedRange range{begin, begin + memory.size()};
  bool shared = false;
  const auto looked = for_each_vma(kernel_, [&](const Vma& vma) {
    shared = shared || (vma.shared && vma.begin < range.end && vma.end > range.begin);
  });
  if (!looked || shared) {
    HEADRACE_TRY_STATUS(source_->untrack(memory));
    HEADRACE_TRY_STATUS(looked);
    return fail(ErrorCode::unsupported,
                "the memory is shared with other mappings, which keep its pages; give private "
                "anonymous memory");
  }
  ranges_.insert(std::ranges::upper_bound(ranges_, begin, {}, &TrackedRange::begin), range);
  return {};
}

Status PageTier::Inside::remove(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(source_->untrack(memory));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::erase_if(ranges_, [&](const TrackedRange& each) { return each.begin == begin; });
  hotness_.forget(memory);
  return {};
}

Result<ChunkPlace> PageTier::Inside::place_of(std::uintptr_t begin, std::uintptr_t end) const {
  const std::uint64_t page = bytes_of_page();
  ChunkPlace place{.begin = begin};
  std::array<std::uint64_t, 1024> entries;
  for (std::uintptr_t at = begin; at < end;) {
    const std::size_t count = std::min<std::size_t>(entries.size(), (end - at) / page);
    const std::size_t wanted = count * sizeof(std::uint64_t);
    const std::int64_t got =
        kernel_.pread(pagemap_.get(), entries.data(), wanted,
                      static_cast<std::int64_t>(at / page * sizeof(std::uint64_t)));
    if (got < 0) return fail_errno(static_cast<int>(-got), "/proc/self/pagemap");
    if (std::cmp_not_equal(got, wanted)) return fail(ErrorCode::io, "/proc/self/pagemap ended");
    for (std::size_t i = 0; i < count; ++i) {
      if ((entries[i] & kEntryPresent) != 0) place.resident += {page};
      if ((entries[i] & kEntrySwapped) != 0) place.out += {page};
    }
    at += count * page;
  }
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
    (void)kernel_.madvise(begin, end - begin, MADV_WILLNEED);
    (void)kernel_.madvise(begin, end - begin, kPopulateRead);
  } else {
    (void)kernel_.madvise(begin, end - begin, MADV_PAGEOUT);
  }
  HEADRACE_TRY(const ChunkPlace place, place_of(begin, end));
  return std::min(decision.bytes, decision.in ? place.out : place.resident);
}

Status PageTier::Inside::heat_up() {
  HEADRACE_TRY(const HotnessSample sample, source_->look());
  hotness_.add(sample);
  return {};
}

Result<TierStep> PageTier::Inside::step() {
  HEADRACE_TRY_STATUS(origin_.check("the page tier"));
  const MutexLock lock(mutex_);
  const Nanoseconds now = clock_.now();
  const Nanoseconds elapsed = stepped_ ? now - *stepped_ : std::chrono::seconds{1};
  if (elapsed < options_.least_interval) {
    return fail(ErrorCode::exhausted,
                "the last step was {:.1f} ms ago; wait {:.1f} ms, or set a shorter least_interval",
                seconds(elapsed) * 1e3, seconds(options_.least_interval) * 1e3);
  }
  HEADRACE_TRY_STATUS(heat_up());
  stepped_ = now;
  // At least a chunk for another can move, however slow the rate: then not in each step.
  const Bytes rate = options_.policy.per_second;
  const double earned = static_cast<double>(rate.value) * std::min(seconds(elapsed), 1.0);
  allowance_ = std::min(allowance_ + Bytes{static_cast<std::uint64_t>(earned)},
                        std::max(rate, options_.chunk * 2));
  HEADRACE_TRY(const std::vector<ChunkPlace> before, places());
  TierStep step{.decisions = decide(before, options_.policy, allowance_)};
  bool any_in = false;
  for (const TierDecision& decision : step.decisions) {
    HEADRACE_TRY(const Bytes refused, carry_out(decision));
    step.refused += refused;
    allowance_ -= decision.bytes;
    any_in = any_in || decision.in;
    log_.push_back(decision);
    if (log_.size() > kKeptDecisions) log_.pop_front();
  }
  // What was touched to bring it in is no use of the program.
  if (any_in) HEADRACE_TRY_STATUS(source_->look());
  HEADRACE_TRY(const std::vector<ChunkPlace> after, places());
  for (const ChunkPlace& place : after) {
    step.resident += place.resident;
    step.out += place.out;
  }
  return step;
}

std::vector<TierDecision> PageTier::Inside::decisions() const {
  if (!origin_.here()) return {};
  const MutexLock lock(mutex_);
  return {log_.begin(), log_.end()};
}

Result<std::unique_ptr<PageTier>> PageTier::open(const PageTierOptions& options) {
  HEADRACE_TRY(auto inside, Inside::open(options, system_kernel()));
  return std::unique_ptr<PageTier>(new PageTier(std::move(inside)));
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
