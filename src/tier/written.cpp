// Pages write-protected without a handler (UFFD_FEATURE_WP_ASYNC): the kernel itself takes the
// protection away at the first write, and tells which pages have lost it while it protects them
// again (PAGEMAP_SCAN), in one step, so that no write is missed.
#include <sys/mman.h>
#include <unistd.h>

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
  Result<Tracking> begin(const TrackedRange& range, std::span<const Vma> vmas) override;
  void end(const TrackedRange& range) override { unregister_range(kernel(), faults_.get(), range); }
  Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) override;

  OwnDescriptor pagemap_;
  OwnDescriptor faults_;
};

Result<Tracking> WrittenSource::begin(const TrackedRange& range, std::span<const Vma>) {
  HEADRACE_TRY_STATUS(register_protection(kernel(), faults_.get(), range.begin, range.end));
  if (auto protected_now = protect_pages(kernel(), faults_.get(), range.begin, range.end);
      !protected_now) {
    end(range);
    return std::unexpected(protected_now.error());
  }
  return Tracking{.granularity = {static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
}

Status WrittenSource::examine(std::span<const TrackedRange> ranges, HotnessSample& sample) {
  for (const TrackedRange& range : ranges) {
    HEADRACE_TRY_STATUS(scan_pages(kernel(), pagemap_.get(), range.begin, range.end, kPageIsWritten,
                                   kProtectMatching, [&](const PageRegion& region) {
                                     sample.touches.push_back(touch_of(
                                         region.begin, region.end, {region.end - region.begin}));
                                   }));
    if (::msync(reinterpret_cast<void*>(range.begin), range.bytes().value, MS_ASYNC) != 0) {
      miss(sample, unmapped_bytes(kernel(), range), "no longer mapped");
    }
  }
  return {};
}

}  // namespace

SourceResult open_written(const HotnessOptions& options, Kernel& kernel) {
  HEADRACE_TRY(OwnDescriptor pagemap, open_pagemap(kernel));
  HEADRACE_TRY(OwnDescriptor faults, open_write_protection(kernel));
  return std::make_unique<WrittenSource>(options, kernel, std::move(pagemap), std::move(faults));
}

}  // namespace headrace
