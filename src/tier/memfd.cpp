// SPDX-License-Identifier: Apache-2.0
// Shared memory whose page table entries are dropped; pages that are mapped again were touched.
//
// MADV_DONTNEED on a shared mapping only drops the entries; the bytes stay in the file. The next
// access faults in exactly its page: the memory is registered for write protection, which is never
// turned on, so the kernel does not map neighbours along with it (fault-around).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "tier/claims.h"
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
  Result<Tracking> begin(const TrackedRange& range) override;
  void end(const TrackedRange& range) override { unregister_range(kernel(), faults_.get(), range); }
  Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) override;
  void examine(const TrackedRange& range, HotnessSample& sample);
  // Passes the present pages to `present`, and drops their entries. nullopt: not, or no longer,
  // SharedMemory; memory that took its place is not registered.
  std::optional<int> drop(const TrackedRange& range,
                          const std::function<void(const PageRegion&)>& present);

  OwnDescriptor pagemap_;
  OwnDescriptor faults_;
};

Result<Tracking> MemfdSource::begin(const TrackedRange& range) {
  const std::optional<FileId> file = shared_file(range.begin, range.end);
  bool ours = file.has_value();
  // Any other mapping at these addresses would lose its bytes.
  HEADRACE_TRY_STATUS(for_each_vma(kernel(), [&](const Vma& vma) {
    if (vma.end <= range.begin || vma.begin >= range.end) return;
    ours = ours && vma.shared && vma.file == *file;
  }));
  if (!ours) {
    return fail(ErrorCode::unsupported,
                "only shared memory keeps its bytes without page table entries; give memory of "
                "one SharedMemory, or take another source");
  }
  HEADRACE_TRY_STATUS(register_protection(kernel(), faults_.get(), range.begin, range.end));
  Undo undo([&] { end(range); });
  const auto dropped = drop(range, [](const PageRegion&) {});
  if (dropped && *dropped == 0) {
    undo.keep();
    return Tracking{.granularity = {static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
  }
  if (!dropped) {
    return fail(ErrorCode::invalid, "the memory was unmapped or replaced while it was tracked");
  }
  if (*dropped == -EINVAL) {
    return fail(ErrorCode::unsupported,
                "the memory is locked (mlock), so that its page table entries stay; unlock it, or "
                "take another source");
  }
  return fail_errno(-*dropped, "cannot drop page table entries (madvise)");
}

Status MemfdSource::examine(std::span<const TrackedRange> ranges, HotnessSample& sample) {
  for (const TrackedRange& range : ranges) examine(range, sample);
  return {};
}

void MemfdSource::examine(const TrackedRange& range, HotnessSample& sample) {
  const std::size_t before = sample.touches.size();
  const auto dropped = drop(range, [&](const PageRegion& region) {
    sample.touches.push_back(touch_of(region.begin, region.end, {region.end - region.begin}));
  });
  if (!dropped || *dropped == -EINVAL) {
    sample.touches.resize(before);
    miss(sample, range.bytes(),
         dropped ? "locked by now (mlock)" : "no longer the memory that was tracked");
  } else if (*dropped < 0) {
    miss(sample, unmapped_bytes(kernel(), range), "no longer mapped");
  }
}

std::optional<int> MemfdSource::drop(const TrackedRange& range,
                                     const std::function<void(const PageRegion&)>& present) {
  // In parts, because fork() and unmap wait meanwhile.
  constexpr std::uint64_t kPart = 16 << 20;
  int result = 0;
  for (std::uintptr_t at = range.begin; at < range.end; at += kPart) {
    const auto end = std::min<std::uintptr_t>(range.end, at + kPart);
    if (!scan_pages(kernel(), pagemap_.get(), at, end, kPageIsPresent, kCheckProtected, present)) {
      return std::nullopt;
    }
    const auto dropped = drop_entries(kernel(), at, end);
    if (!dropped) return std::nullopt;
    if (*dropped < 0 && result != -EINVAL) result = *dropped;
  }
  return result;
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
  struct stat status{};
  int error =
      ::ftruncate(file, static_cast<off_t>(length)) == 0 && ::fstat(file, &status) == 0 ? 0 : errno;
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  ::close(file);
  if (error != 0) return fail_errno(error, "cannot map shared memory of " + to_string(bytes));
  SharedMemory shared(std::span<std::byte>(static_cast<std::byte*>(memory), length));
  return no_throw([&]() -> Result<SharedMemory> {
    add_shared(shared.bytes_, {status.st_dev, status.st_ino});
    return std::move(shared);
  });
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}
SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}
SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) unmap_shared(bytes_);
}

}  // namespace headrace
