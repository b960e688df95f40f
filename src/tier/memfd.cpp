// Shared memory whose page table entries are dropped: who is back was touched.
//
// MADV_DONTNEED on a shared mapping drops entries and nothing else; the bytes are in the file. The
// next access faults the page in again, and it only: registered for write protection, which nobody
// switches on, the kernel does not map its neighbours with it (fault-around).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/fail.h"
#include "memory/memory.h"
#include "tier/source.h"

namespace headrace {
namespace {

class MemfdSource final : public SourceBase {
 public:
  MemfdSource(const HotnessOptions& options, Kernel& kernel, OwnDescriptor pagemap,
              OwnDescriptor faults)
      : SourceBase(HotnessKind::memfd, options, kernel),
        pagemap_(std::move(pagemap)),
        faults_(std::move(faults)) {}
  ~MemfdSource() override {
    end_all();
    if (here()) return;
    pagemap_.forget();
    faults_.forget();
  }

 private:
  Result<Tracking> begin(const TrackedRange& range, std::span<const Vma> vmas) override;
  void end(const TrackedRange& range) override { unregister_range(kernel(), faults_.get(), range); }
  Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) override;
  void examine(const TrackedRange& range, HotnessSample& sample);
  int drop(const TrackedRange& range) {
    return kernel().madvise(range.begin, range.bytes().value, MADV_DONTNEED);
  }

  OwnDescriptor pagemap_;
  OwnDescriptor faults_;
};

Result<Tracking> MemfdSource::begin(const TrackedRange& range, std::span<const Vma> vmas) {
  if (!std::ranges::all_of(vmas, &Vma::shared) || std::ranges::any_of(vmas, &Vma::hugetlb)) {
    return fail(ErrorCode::unsupported,
                "only shared memory keeps its bytes without page table entries; make it by "
                "SharedMemory, or take another source");
  }
  if (std::ranges::any_of(vmas, &Vma::locked)) {
    return fail(ErrorCode::unsupported,
                "the memory is locked (mlock), so that its page table entries stay; unlock it, or "
                "take another source");
  }
  HEADRACE_TRY_STATUS(register_protection(kernel(), faults_.get(), range.begin, range.end));
  if (const int error = drop(range); error < 0) {
    end(range);
    return fail_errno(-error, "cannot drop page table entries (madvise)");
  }
  return Tracking{.granularity = {static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
}

Status MemfdSource::examine(std::span<const TrackedRange> ranges, HotnessSample& sample) {
  for (const TrackedRange& range : ranges) examine(range, sample);
  return {};
}

void MemfdSource::examine(const TrackedRange& range, HotnessSample& sample) {
  const std::size_t before = sample.touches.size();
  // In place of what was unmapped there may be memory of somebody else, whose bytes would be gone
  // with its entries: it is not registered.
  const auto ours = scan_pages(
      kernel(), pagemap_.get(), range.begin, range.end, kPageIsPresent, kCheckProtected,
      [&](const PageRegion& region) {
        sample.touches.push_back(touch_of(region.begin, region.end, {region.end - region.begin}));
      });
  if (!ours) {
    sample.touches.resize(before);
    return miss(sample, range.bytes(), "no longer the memory that was tracked");
  }
  const int error = drop(range);
  if (error == -EINVAL) {
    sample.touches.resize(before);
    miss(sample, range.bytes(), "locked by now (mlock)");
  } else if (error < 0) {
    miss(sample, unmapped_bytes(kernel(), range), "no longer mapped");
  }
}

}  // namespace

SourceResult open_memfd(const HotnessOptions& options, Kernel& kernel) {
  HEADRACE_TRY(OwnDescriptor pagemap, open_pagemap(kernel));
  HEADRACE_TRY(OwnDescriptor faults, open_write_protection(kernel));
  return std::make_unique<MemfdSource>(options, kernel, std::move(pagemap), std::move(faults));
}

Result<SharedMemory> SharedMemory::make(Bytes bytes) {
  if (bytes.value == 0) return fail(ErrorCode::invalid, "no bytes of shared memory; give some");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (bytes.value > PTRDIFF_MAX - page) {
    return fail(ErrorCode::exhausted, "no process has {} of addresses", to_string(bytes));
  }
  const std::uint64_t length = (bytes.value + page - 1) / page * page;
  const int file = ::memfd_create("headrace", MFD_CLOEXEC);
  if (file < 0) return fail_errno(errno, "cannot make a file in memory (memfd_create)");
  int error = ::ftruncate(file, static_cast<off_t>(length)) == 0 ? 0 : errno;
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  ::close(file);
  if (error != 0) return fail_errno(error, "cannot map shared memory of " + to_string(bytes));
  return SharedMemory({static_cast<std::byte*>(memory), length});
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}
SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}
SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) unmap(bytes_.data(), bytes_.size());
}

}  // namespace headrace
