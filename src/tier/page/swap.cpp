// SPDX-License-Identifier: Apache-2.0
// Swap as slow memory. Pages are located by pagemap, since mincore counts the swap cache as
// resident.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"
#include "memory/memory.h"
#include "tier/page/slow_memory.h"

namespace headrace {
namespace {

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14
// Documentation/admin-guide/mm/pagemap.rst
constexpr std::uint64_t kEntryPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kEntrySwapped = std::uint64_t{1} << 62;

class Swap final : public SlowMemory {
 public:
  Swap(Kernel& kernel, OwnDescriptor pagemap)
      : kernel_(kernel),
        pagemap_(std::move(pagemap)),
        page_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {}

  Status try_out();
  Result<ChunkPlace> place_of(const TrackedRange& range) const override;
  Status move(std::span<const TrackedRange> ranges, bool in) override;
  bool moves_any() const override { return false; }
  std::optional<Bytes> room(Bytes) const override { return {}; }

 private:
  // Calls `each` with the address and pagemap entry of every page.
  Status read_pagemap(const TrackedRange& range,
                      const std::function<void(std::uintptr_t, std::uint64_t)>& each) const;
  Status bring_in(const TrackedRange& range);

  Kernel& kernel_;
  const OwnDescriptor pagemap_;
  const std::uint64_t page_;
};

Status Swap::try_out() {
  auto mapped = MappedMemory::make({page_}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!mapped) return fail_errno(mapped.error(), "cannot map a page");
  *mapped->memory() = std::byte{1};
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped->memory());
  const TrackedRange page{begin, begin + page_};
  const int refused = kernel_.madvise(begin, page_, MADV_PAGEOUT);
  HEADRACE_TRY(ChunkPlace place, place_of(page));
  if (place.out.value > 0) {
    HEADRACE_TRY_STATUS(bring_in(page));
    HEADRACE_TRY(place, place_of(page));
    if (place.out.value == 0) return {};
    return fail(ErrorCode::unsupported,
                "a page that was to come in stayed out: the kernel is older than 5.14");
  }
  if (refused == -EINVAL) {
    return fail(ErrorCode::unsupported,
                "the kernel pages nothing out for a process (MADV_PAGEOUT); it takes Linux 5.14");
  }
  return no_swap();
}

Status Swap::read_pagemap(const TrackedRange& range,
                          const std::function<void(std::uintptr_t, std::uint64_t)>& each) const {
  std::array<std::uint64_t, 1024> entries;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    const std::size_t count = std::min<std::size_t>(entries.size(), (range.end - at) / page_);
    const std::size_t wanted = count * sizeof(std::uint64_t);
    const std::int64_t got =
        kernel_.pread(pagemap_.get(), entries.data(), wanted,
                      static_cast<std::int64_t>(at / page_ * sizeof(std::uint64_t)));
    if (got < 0) return fail_errno(static_cast<int>(-got), "/proc/self/pagemap");
    if (std::cmp_not_equal(got, wanted)) return fail(ErrorCode::io, "/proc/self/pagemap ended");
    for (std::size_t i = 0; i < count; ++i, at += page_) each(at, entries[i]);
  }
  return {};
}

Result<ChunkPlace> Swap::place_of(const TrackedRange& range) const {
  ChunkPlace place{.begin = range.begin};
  HEADRACE_TRY_STATUS(read_pagemap(range, [&](std::uintptr_t, std::uint64_t entry) {
    if ((entry & kEntryPresent) != 0) place.resident += {page_};
    if ((entry & kEntrySwapped) != 0) place.out += {page_};
  }));
  return place;
}

Status Swap::move(std::span<const TrackedRange> ranges, bool in) {
  for (const TrackedRange& range : ranges) {
    if (in) {
      HEADRACE_TRY_STATUS(bring_in(range));
    } else {
      (void)kernel_.madvise(range.begin, range.bytes().value, MADV_PAGEOUT);
    }
  }
  return {};
}

// Populates only pages in swap: populating a page that never existed would make one.
Status Swap::bring_in(const TrackedRange& range) {
  (void)kernel_.madvise(range.begin, range.bytes().value, MADV_WILLNEED);
  TrackedRange swapped;
  const auto populate = [&] {
    if (swapped.begin == swapped.end) return;
    (void)kernel_.madvise(swapped.begin, swapped.bytes().value, kPopulateRead);
  };
  HEADRACE_TRY_STATUS(read_pagemap(range, [&](std::uintptr_t at, std::uint64_t entry) {
    if ((entry & kEntrySwapped) == 0) return;
    if (swapped.end != at) {
      populate();
      swapped.begin = at;
    }
    swapped.end = at + page_;
  }));
  populate();
  return {};
}

}  // namespace

Unexpected no_swap() {
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

Result<std::unique_ptr<SlowMemory>> open_swap(Kernel& kernel) {
  HEADRACE_TRY(OwnDescriptor pagemap, open_proc(kernel, "/proc/self/pagemap", O_RDONLY));
  auto swap = std::make_unique<Swap>(kernel, std::move(pagemap));
  HEADRACE_TRY_STATUS(swap->try_out());
  return swap;
}

}  // namespace headrace
