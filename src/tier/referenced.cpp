// SPDX-License-Identifier: Apache-2.0
// Chunks as separate mappings, and the accessed bits of their pages.
//
// smaps shows per mapping how many pages were touched (Referenced) since the bits were last cleared
// (clear_refs). The kernel merges similar neighbours; leaving every other chunk out of core dumps
// keeps them apart. Clearing does not flush the TLB, and a touch through a cached translation
// leaves no trace. Each look therefore ends with a change of protection of its own memory, wide
// enough that the kernel flushes all.
//
// Source: Documentation/filesystems/proc.rst. Decisions are in chunks_of().
#include "tier/referenced.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "memory/memory.h"
#include "tier/claims.h"
#include "tier/source.h"

namespace headrace {
namespace {

// More pages than any kernel flushes one by one (x86: 33, arm64: 512).
constexpr std::uint64_t kFlushedPages = 1024;

// Makes all CPUs of the process drop their translations. Uses shared memory: a limit on private
// memory (RLIMIT_DATA) cannot keep it from becoming writable again.
class TlbFlush {
 public:
  static Result<TlbFlush> make() {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const Bytes length{kFlushedPages * page};
    void* const mapped =
        ::mmap(nullptr, length.value, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map memory");
    (void)::madvise(mapped, length.value, MADV_NOHUGEPAGE);
    return TlbFlush(MappedMemory(static_cast<std::byte*>(mapped), length), page);
  }

  // Does everything that may be refused. Makes the pages at both ends present, so that their
  // removal covers all pages between.
  Status prepare() const {
    std::byte* const first = memory_.memory();
    const std::uint64_t length = memory_.length().value;
    if (::mprotect(first, length, PROT_READ | PROT_WRITE) != 0) {
      return fail_errno(errno, "cannot prepare to flush translations (mprotect)");
    }
    *static_cast<volatile std::byte*>(first) = std::byte{1};
    *static_cast<volatile std::byte*>(first + length - page_) = std::byte{1};
    return {};
  }
  // Requires: prepare() since the last flush.
  Status flush() const {
    if (::mprotect(memory_.memory(), memory_.length().value, PROT_NONE) != 0) {
      return fail_errno(errno, "cannot flush translations (mprotect)");
    }
    return {};
  }

 private:
  TlbFlush(MappedMemory memory, std::uint64_t page) : memory_(std::move(memory)), page_(page) {}
  MappedMemory memory_;
  std::uint64_t page_;
};

class ReferencedSource final : public SourceBase {
 public:
  ReferencedSource(const HotnessOptions& options, Kernel& kernel, OwnDescriptor clear,
                   TlbFlush flush)
      : SourceBase(HotnessKind::referenced, options, kernel),
        clear_(std::move(clear)),
        flush_(std::move(flush)) {}
  ~ReferencedSource() override {
    end_all();
    if (here()) {
      release_accessed_bits();
    } else {
      clear_.forget();
    }
  }

 private:
  Result<Tracking> begin(const TrackedRange& range) override {
    Trackings answers;
    answers.reserve(1);
    HEADRACE_TRY_STATUS(begin_all({&range, 1}, answers));
    return std::move(answers.front());
  }
  Status begin_all(std::span<const TrackedRange> ranges, Trackings& answers) override;
  // Cuts a range into chunks. `used`: mappings of the process; the new mappings are added.
  Result<Tracking> cut(const TrackedRange& range, const Vma& any, std::uint64_t& used);
  void end(const TrackedRange& range) override {
    (void)kernel().madvise(range.begin, range.bytes().value, MADV_DODUMP);
  }
  Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) override;
  Status clear();

  OwnDescriptor clear_;
  const TlbFlush flush_;
};

Status ReferencedSource::clear() {
  HEADRACE_TRY_STATUS(flush_.prepare());
  const std::int64_t written = kernel().write(clear_.get(), "1", 1);
  if (written < 0) {
    return fail_errno(static_cast<int>(-written), "cannot clear the accessed bits (clear_refs)");
  }
  return flush_.flush();
}

Status ReferencedSource::begin_all(std::span<const TrackedRange> ranges, Trackings& answers) {
  if (ranges.empty()) return {};
  std::vector<Vma> found(ranges.size());  // properties of the mappings of each range
  std::uint64_t used = 0;
  HEADRACE_TRY_STATUS(for_each_vma_in_detail(kernel(), [&](const Vma& vma) {
    ++used;
    for (auto range = std::ranges::upper_bound(ranges, vma.begin, {}, &TrackedRange::end);
         range != ranges.end() && range->begin < vma.end; ++range) {
      Vma& any = found[static_cast<std::size_t>(range - ranges.begin())];
      any.hugetlb = any.hugetlb || vma.hugetlb;
      any.undumped = any.undumped || vma.undumped;
      any.huge = any.huge || vma.huge;
    }
  }));
  Undo undo([&] {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i]) change(ranges[i], [&] { end(ranges[i]); });
    }
  });
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    answers.push_back(cut(ranges[i], found[i], used));
  }
  HEADRACE_TRY_STATUS(clear());
  undo.keep();
  return {};
}

Result<Tracking> ReferencedSource::cut(const TrackedRange& range, const Vma& any,
                                       std::uint64_t& used) {
  if (any.hugetlb) {
    return fail(ErrorCode::unsupported,
                "the kernel keeps no account of accesses to pages of a hugetlb pool; give base "
                "pages or transparent huge ones");
  }
  if (any.undumped) {
    return fail(ErrorCode::unsupported,
                "the memory is left out of core dumps (MADV_DONTDUMP), and tracking would put it "
                "in; take another source");
  }
  const std::uint64_t most = kernel().max_mappings();
  const std::uint64_t left = most > used ? most - used : 0;
  if (left < most / 16) {
    return fail(ErrorCode::exhausted,
                "the process has {} of the {} mappings it may have, and needs the rest; raise "
                "vm.max_map_count",
                used, most);
  }
  const std::uint64_t whole = any.huge ? kernel().huge_page().value : 0;
  Chunks chunks = chunks_of(range.begin, range.end, options().chunk, whole, left / 2);
  int error = 0;
  const bool there = change(range, [&] {
    Undo undo([&] { end(range); });
    for (std::size_t i = 0; i + 1 < chunks.bounds.size() && error == 0; i += 2) {
      const std::uintptr_t at = chunks.bounds[i];
      error = std::min(kernel().madvise(at, chunks.bounds[i + 1] - at, MADV_DONTDUMP), 0);
    }
    if (error == 0) undo.keep();
  });
  if (!there) return forgotten();
  if (error != 0) return fail_errno(-error, "cannot make a chunk a mapping of its own (madvise)");
  used += chunks.bounds.size() - 1;
  // Moved: from here on nothing may throw.
  return Tracking{chunks.size, std::move(chunks.note)};
}

Status ReferencedSource::examine(std::span<const TrackedRange> ranges, HotnessSample& sample) {
  std::uint64_t seen = 0;
  HEADRACE_TRY_STATUS(for_each_vma_in_detail(kernel(), [&](const Vma& vma) {
    for (auto range = std::ranges::upper_bound(ranges, vma.begin, {}, &TrackedRange::end);
         range != ranges.end() && range->begin < vma.end; ++range) {
      const std::uintptr_t begin = std::max(vma.begin, range->begin);
      const std::uintptr_t end = std::min(vma.end, range->end);
      seen += end - begin;
      // A range merged with its neighbour gets its proportional share of their touches.
      const Bytes touched{static_cast<std::uint64_t>(static_cast<double>(vma.referenced.value) *
                                                     static_cast<double>(end - begin) /
                                                     static_cast<double>(vma.end - vma.begin))};
      if (touched.value > 0) sample.touches.push_back(touch_of(begin, end, touched));
    }
  }));
  std::uint64_t tracked = 0;
  for (const TrackedRange& range : ranges) tracked += range.bytes().value;
  if (seen < tracked) miss(sample, {tracked - seen}, "no longer mapped");
  return clear();
}

}  // namespace

Chunks chunks_of(std::uintptr_t begin, std::uintptr_t end, Bytes wanted, std::uint64_t whole,
                 std::uint64_t most) {
  Chunks chunks{.size = {std::max(wanted.value, whole)}};
  if (whole > wanted.value) chunks.note = "huge pages are kept whole";
  const std::uint64_t before = chunks.size.value;
  const auto pieces = [&] { return (end - 1) / chunks.size.value - begin / chunks.size.value + 1; };
  // Plus one when the number of chunks is even.
  while (chunks.size.value < end - begin && pieces() + 1 > most) chunks.size = chunks.size * 2;
  if (chunks.size.value > before) {
    chunks.note += (chunks.note.empty() ? "" : "; ");
    chunks.note += "chunks of " + to_string(chunks.size) + ", for the kernel allows this process " +
                   std::to_string(most) + " mappings more (half of vm.max_map_count that is left)";
  }
  const std::uint64_t size = chunks.size.value;
  const bool one = pieces() + 1 > most;
  chunks.bounds.push_back(begin);
  for (std::uintptr_t at = (begin / size + 1) * size; at < end && !one; at += size) {
    chunks.bounds.push_back(at);
  }
  chunks.bounds.push_back(end);
  // Both ends are left out of dumps, so that neither merges with its outer neighbour; so the number
  // is odd.
  if (chunks.bounds.size() % 2 == 1) {
    const auto last = chunks.bounds.end() - 1;
    const std::uint64_t pages = (*last - *(last - 1)) / kLeastPage;
    if (pages > 1) {
      chunks.bounds.insert(last, *last - pages / 2 * kLeastPage);
    } else {
      chunks.bounds.erase(last - 1);
    }
  }
  return chunks;
}

SourceResult open_referenced(const HotnessOptions& options, Kernel& kernel) {
  HEADRACE_TRY(OwnDescriptor clear, open_proc(kernel, "/proc/self/clear_refs", O_WRONLY));
  HEADRACE_TRY(TlbFlush flush, TlbFlush::make());
  if (!claim_accessed_bits()) {
    return fail(ErrorCode::exhausted,
                "this process has a source `referenced` already, and each clears the accessed bits "
                "of the whole process; track with that one");
  }
  return std::make_unique<ReferencedSource>(options, kernel, std::move(clear), std::move(flush));
}

}  // namespace headrace
