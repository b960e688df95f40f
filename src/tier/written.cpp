// SPDX-License-Identifier: Apache-2.0
// Pages write-protected without a handler (UFFD_FEATURE_WP_ASYNC). The kernel itself removes the
// protection at the first write. One call (PAGEMAP_SCAN) lists the unprotected pages and protects
// them again, so that no write through these page table entries is missed.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "tier/source.h"

namespace headrace {
namespace {

class WrittenSource final : public SourceBase {
 public:
  WrittenSource(const HotnessOptions& options, Kernel& kernel, OwnDescriptor pagemap,
                OwnDescriptor faults)
      : SourceBase(HotnessKind::written, options, kernel),
        pagemap_(std::move(pagemap)),
        faults_(std::move(faults)) {}
  ~WrittenSource() override {
    end_all();
    if (here()) return;
    pagemap_.forget();
    faults_.forget();
  }

 private:
  Result<Tracking> begin(const TrackedRange& range) override;
  void end(const TrackedRange& range) override { unregister_range(kernel(), faults_.get(), range); }
  Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) override;
  // Requires: a part within one mapping.
  Status examine(const TrackedRange& part, HotnessSample& sample);

  OwnDescriptor pagemap_;
  OwnDescriptor faults_;
};

Result<Tracking> WrittenSource::begin(const TrackedRange& range) {
  HEADRACE_TRY_STATUS(register_protection(kernel(), faults_.get(), range.begin, range.end));
  Undo undo([&] { end(range); });
  HEADRACE_TRY_STATUS(protect_pages(kernel(), faults_.get(), range.begin, range.end));
  undo.keep();
  return Tracking{.granularity = {static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
}

Status WrittenSource::examine(std::span<const TrackedRange> ranges, HotnessSample& sample) {
  std::uint64_t seen = 0;
  Status scanned;
  // Mapping by mapping: memory that took the place of ours is not protected, and must not keep the
  // rest from being reported.
  HEADRACE_TRY_STATUS(for_each_vma(kernel(), [&](const Vma& vma) {
    for (auto range = std::ranges::upper_bound(ranges, vma.begin, {}, &TrackedRange::end);
         range != ranges.end() && range->begin < vma.end; ++range) {
      const TrackedRange part{std::max(vma.begin, range->begin), std::min(vma.end, range->end)};
      seen += part.bytes().value;
      if (auto status = examine(part, sample); !status) scanned = std::move(status);
    }
  }));
  std::uint64_t tracked = 0;
  for (const TrackedRange& range : ranges) tracked += range.bytes().value;
  if (seen < tracked) miss(sample, {tracked - seen}, "no longer mapped");
  return scanned;
}

Status WrittenSource::examine(const TrackedRange& part, HotnessSample& sample) {
  const auto scanned = scan_pages(
      kernel(), pagemap_.get(), part.begin, part.end, kPageIsWritten,
      kProtectMatching | kCheckProtected, [&](const PageRegion& region) {
        sample.touches.push_back(touch_of(region.begin, region.end, {region.end - region.begin}));
      });
  if (scanned || scanned.error().code != ErrorCode::denied) return scanned;
  miss(sample, part.bytes(), "no longer the memory that was tracked");
  return {};
}

}  // namespace

SourceResult open_written(const HotnessOptions& options, Kernel& kernel) {
  HEADRACE_TRY(OwnDescriptor pagemap, open_pagemap(kernel));
  HEADRACE_TRY(OwnDescriptor faults, open_write_protection(kernel));
  return std::make_unique<WrittenSource>(options, kernel, std::move(pagemap), std::move(faults));
}

}  // namespace headrace
