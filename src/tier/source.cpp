// SPDX-License-Identifier: Apache-2.0
#include "tier/source.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "tier/claims.h"

namespace headrace {
namespace {

std::uint64_t size_of_page() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

// Checks that `memory` is whole pages.
Result<TrackedRange> range_of(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  if (memory.empty()) return fail(ErrorCode::invalid, "there are no bytes to track; give some");
  if (begin % size_of_page() != 0 || memory.size() % size_of_page() != 0) {
    return fail(ErrorCode::invalid,
                "{} bytes at {:#x} are not whole pages; give memory that begins and ends at "
                "multiples of {}",
                memory.size(), begin, size_of_page());
  }
  return TrackedRange{begin, begin + memory.size()};
}

// Errors: invalid: a hole in the range. Reads all mappings only to find where.
Status check_mapped(Kernel& kernel, const TrackedRange& range) {
  if (::msync(reinterpret_cast<void*>(range.begin), range.bytes().value, MS_ASYNC) == 0) return {};
  std::uintptr_t covered = range.begin;
  HEADRACE_TRY_STATUS(for_each_vma(kernel, [&](const Vma& vma) {
    if (vma.begin <= covered) covered = std::max(covered, vma.end);
  }));
  if (covered >= range.end) return {};
  return fail(ErrorCode::invalid, "there is no memory at {:#x}; track what is mapped", covered);
}

SourceResult open_kind(HotnessKind kind, const HotnessOptions& options, Kernel& kernel) {
  switch (kind) {
    case HotnessKind::referenced: return open_referenced(options, kernel);
    case HotnessKind::memfd: return open_memfd(options, kernel);
    case HotnessKind::written: return open_written(options, kernel);
  }
  CHECK(false);
  std::unreachable();
}

// Checks that the source sees a written page and no other: a sandbox's kernel may accept every call
// and do nothing.
Status try_out(HotnessSource& source) {
  HEADRACE_TRY(const SharedMemory memory, SharedMemory::make({4 * size_of_page()}));
  volatile std::byte* const page = memory.bytes().data() + size_of_page();
  *page = std::byte{1};
  HEADRACE_TRY_STATUS(source.track(memory.bytes()));
  // After the unmap, its addresses may belong to other memory.
  const Undo untracking([&] { (void)source.untrack(memory.bytes()); });
  HEADRACE_TRY(const HotnessSample before, source.look());
  *page = std::byte{2};
  HEADRACE_TRY(const HotnessSample written, source.look());
  HEADRACE_TRY(const HotnessSample after, source.look());
  if (!before.touches.empty() || written.touches.empty() || !after.touches.empty()) {
    return fail(ErrorCode::unsupported,
                "{} takes every call here and does not see a page that is written; this is no "
                "Linux, or one that a sandbox stands in for",
                to_string(source.traits().kind));
  }
  return {};
}

SourceResult open_tried(HotnessKind kind, const HotnessOptions& options, Kernel& kernel) {
  HotnessOptions trial = options;
  trial.least_interval = {};
  {
    HEADRACE_TRY(const auto source, open_kind(kind, trial, kernel));
    HEADRACE_TRY_STATUS(try_out(*source));
  }
  return open_kind(kind, options, kernel);
}

}  // namespace

std::string_view to_string(HotnessKind kind) {
  switch (kind) {
    case HotnessKind::referenced: return "referenced";
    case HotnessKind::memfd: return "memfd";
    case HotnessKind::written: return "written";
  }
  CHECK(false);
  return {};
}

HotnessTraits traits_of(HotnessKind kind) {
  switch (kind) {
    case HotnessKind::referenced:
      return {.kind = kind,
              .sees_reads = true,
              .sees_writes = true,
              .memory = "any but pages of a hugetlb pool and what is left out of core dumps",
              .cost =
                  "clears the accessed bits of the whole process, which reclaim uses too; its "
                  "mappings are many while it tracks, and core dumps have every other chunk"};
    case HotnessKind::memfd:
      return {.kind = kind,
              .sees_reads = true,
              .sees_writes = true,
              .by_page = true,
              .memory = "SharedMemory",
              .cost = "a page fault at the first access to each page after a look"};
    case HotnessKind::written:
      return {
          .kind = kind,
          .sees_writes = true,
          .by_page = true,
          .memory = "anonymous memory, and memory files mapped shared",
          .cost = "a page fault at the first write to each page after a look; splits huge pages"};
  }
  CHECK(false);
  return {};
}

Touch touch_of(std::uintptr_t begin, std::uintptr_t end, Bytes touched) {
  return {{reinterpret_cast<const std::byte*>(begin), end - begin}, touched};
}

Bytes unmapped_bytes(Kernel& kernel, const TrackedRange& range) {
  Bytes mapped;
  const auto all = for_each_vma(kernel, [&](const Vma& vma) {
    const std::uintptr_t begin = std::max(vma.begin, range.begin);
    const std::uintptr_t end = std::min(vma.end, range.end);
    if (begin < end) mapped += {end - begin};
  });
  return all ? range.bytes() - mapped : range.bytes();
}

void unregister_range(Kernel& kernel, int descriptor, const TrackedRange& range) {
  if (unregister_protection(kernel, descriptor, range.begin, range.end)) return;
  // With a hole, or other memory in it, the range is handled piece by piece.
  (void)for_each_vma(kernel, [&](const Vma& vma) {
    const std::uintptr_t begin = std::max(vma.begin, range.begin);
    const std::uintptr_t end = std::min(vma.end, range.end);
    if (begin < end) (void)unregister_protection(kernel, descriptor, begin, end);
  });
}

Unexpected forgotten() { return fail(ErrorCode::invalid, "the memory is given back already"); }

SourceBase::SourceBase(HotnessKind kind, const HotnessOptions& options, Kernel& kernel)
    : HotnessSource(kind),
      options_(options),
      kernel_(kernel),
      clock_(options.clock != nullptr ? *options.clock : system_clock()) {}

void SourceBase::leave() { abandon(std::move(ranges_)); }

void SourceBase::end_all() {
  if (!here()) return leave();
  const MutexLock lock(mutex_);
  drop_forgotten();
  for (const TrackedRange& range : ranges_) {
    end(range);
    release_claim(range.begin);
  }
  ranges_.clear();
}

void SourceBase::miss(HotnessSample& sample, Bytes bytes, std::string_view why) {
  sample.unseen += bytes;
  if (sample.why_unseen.find(why) != std::string::npos) return;
  if (!sample.why_unseen.empty()) sample.why_unseen += "; ";
  sample.why_unseen += why;
}

Result<Tracking> SourceBase::track(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the source of hotness"));
  HEADRACE_TRY_STATUS(no_throw([&]() -> Status {
    expect(1);
    return {};
  }));
  HEADRACE_TRY(Trackings answers, track_all({&memory, 1}));
  return std::move(answers.front());
}

Result<SourceBase::Trackings> SourceBase::track_all(
    std::span<const std::span<const std::byte>> memory) {
  return no_throw([&] { return track_or_throw(memory); });
}

Result<TrackedRange> SourceBase::claim_range(std::span<const std::byte> memory) {
  HEADRACE_TRY(const TrackedRange range, range_of(memory));
  MutexLock lock(forgetting_);
  if (is_forgotten(range)) return forgotten();
  lock.unlock();
  HEADRACE_TRY_STATUS(check_mapped(kernel_, range));
  lock.lock();
  if (is_forgotten(range)) return forgotten();
  HEADRACE_TRY_STATUS(claim(range.begin, range.end, traits().kind));
  return range;
}

void SourceBase::release_range(const TrackedRange& range) {
  const MutexLock lock(forgetting_);
  if (!is_forgotten(range)) release_claim(range.begin);
}

Result<SourceBase::Trackings> SourceBase::track_or_throw(
    std::span<const std::span<const std::byte>> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the source of hotness"));
  const MutexLock lock(mutex_);
  const std::size_t most = ranges_.size() + memory.size();
  if (most > ranges_.capacity()) ranges_.reserve(2 * most);
  {
    const MutexLock forgetting(forgetting_);
    forgotten_.reserve(most);
  }
  Trackings answers;
  std::vector<TrackedRange> claimed;
  claimed.reserve(memory.size());
  Undo undo([&] {
    for (const TrackedRange& range : claimed) release_range(range);
  });
  std::vector<std::size_t> numbers;  // indices of the claimed ranges
  for (const auto& each : memory) {
    auto range = claim_range(each);
    if (range) claimed.push_back(*range);
    if (range) numbers.push_back(answers.size());
    answers.push_back(range ? Result<Tracking>{} : Unexpected(std::move(range).error()));
  }
  Trackings begun;
  begun.reserve(claimed.size());
  HEADRACE_TRY_STATUS(begin_all(claimed, begun));
  undo.keep();
  if (ranges_.empty()) since_ = clock_.now();
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    if (begun[i]) {
      ranges_.push_back(claimed[i]);
    } else {
      release_range(claimed[i]);
    }
    answers[numbers[i]] = std::move(begun[i]);
  }
  std::ranges::sort(ranges_, {}, &TrackedRange::begin);
  return answers;
}

Status SourceBase::begin_all(std::span<const TrackedRange> ranges, Trackings& answers) {
  Undo undo([&] {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i]) end(ranges[i]);
    }
  });
  for (const TrackedRange& range : ranges) answers.push_back(begin(range));
  undo.keep();
  return {};
}

bool SourceBase::is_forgotten(const TrackedRange& range) const {
  return std::ranges::find(forgotten_, range) != forgotten_.end();
}

bool SourceBase::enter(const TrackedRange& range) {
  const MutexLock lock(forgetting_);
  if (is_forgotten(range)) return false;
  changing_ = range;
  changed_.notify_all();
  return true;
}

void SourceBase::expect(std::size_t more) {
  const MutexLock lock(mutex_);
  drop_forgotten();
  const MutexLock forgetting(forgetting_);
  forgotten_.reserve(ranges_.size() + more);
}

void SourceBase::forget(std::span<const std::byte> memory) {
  CHECK(traits().kind == HotnessKind::referenced);
  if (!here()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const TrackedRange range{begin, begin + memory.size()};
  const MutexLock lock(forgetting_);
  release_claim(begin);
  forgotten_.push_back(range);
  // The change ends after a few kernel calls.
  while (changing_ == range) changed_.wait_for(forgetting_, std::chrono::seconds{1});
}

void SourceBase::drop_forgotten() {
  const MutexLock lock(forgetting_);
  if (forgotten_.empty()) return;
  const auto before = [](const TrackedRange& a, const TrackedRange& b) {
    return a.begin < b.begin;
  };
  std::ranges::sort(forgotten_, before);
  const std::span<const TrackedRange> gone(forgotten_);
  std::erase_if(ranges_, [&](const TrackedRange& range) {
    return std::ranges::binary_search(gone, range, before);
  });
  forgotten_.clear();
}

Status SourceBase::untrack(std::span<const std::byte> memory) {
  return no_throw([&] { return untrack_or_throw(memory); });
}

Status SourceBase::untrack_or_throw(std::span<const std::byte> memory) {
  HEADRACE_TRY_STATUS(origin_.check("the source of hotness"));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const MutexLock lock(mutex_);
  drop_forgotten();
  const auto found = std::ranges::find(ranges_, TrackedRange{begin, begin + memory.size()});
  if (found == ranges_.end()) {
    return fail(ErrorCode::invalid, "{} does not track these {} bytes at {:#x} as one range",
                to_string(traits().kind), memory.size(), begin);
  }
  end(*found);
  release_claim(begin);
  ranges_.erase(found);
  return {};
}

Result<HotnessSample> SourceBase::look() {
  return no_throw([&] { return look_or_throw(); });
}

Result<HotnessSample> SourceBase::look_or_throw() {
  HEADRACE_TRY_STATUS(origin_.check("the source of hotness"));
  const MutexLock lock(mutex_);
  const Nanoseconds now = clock_.now();
  // After a clock was set back, the elapsed time is unknown.
  if (looked_ && now >= *looked_ && now - *looked_ < options_.least_interval) {
    return fail(ErrorCode::exhausted,
                "the last look was {:.1f} ms ago; wait {:.1f} ms, or set a shorter least_interval",
                seconds(now - *looked_) * 1e3, seconds(options_.least_interval) * 1e3);
  }
  HotnessSample sample;
  drop_forgotten();
  if (!ranges_.empty()) {
    HEADRACE_TRY_STATUS(examine(ranges_, sample));
    sample.covered = std::max(now - since_, Nanoseconds{});
  }
  since_ = now;
  looked_ = now;
  return sample;
}

SourceResult open_hotness(HotnessKind kind, const HotnessOptions& options, Kernel& kernel) {
  if (!std::has_single_bit(options.chunk.value) || options.chunk.value < size_of_page()) {
    return fail(ErrorCode::invalid, "a chunk of {} bytes; give a power of two of at least {}",
                options.chunk.value, size_of_page());
  }
  if (options.least_interval < Nanoseconds{}) {
    return fail(ErrorCode::invalid, "a least interval of {} ns; give 0 or more",
                options.least_interval.count());
  }
  return no_throw([&] { return open_tried(kind, options, kernel); });
}

SourceResult open_hotness(HotnessKind kind, const HotnessOptions& options) {
  return open_hotness(kind, options, system_kernel());
}

}  // namespace headrace
