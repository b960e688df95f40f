// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/address_space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace headrace::cuda::fake {
namespace {

std::size_t whole_pages(std::size_t size) { return (size + 4095) / 4096 * 4096; }

std::shared_ptr<Range> make_range(Kind kind, std::size_t size, void* users, void* own,
                                  const Context* owner) {
  auto range = std::make_shared<Range>();
  range->kind = kind;
  range->address = as_address(users);
  range->size = size;
  range->bytes = static_cast<std::byte*>(own);
  range->owner = owner;
  return range;
}

}  // namespace

Range::~Range() {
  if (mapped == 0) return;
  munmap(bytes, mapped);
  if (as_address(bytes) != address) munmap(reinterpret_cast<void*>(address), mapped);
}

std::shared_ptr<Range> make_device_range(std::size_t size, int device, const Context* owner) {
  const std::size_t mapped = whole_pages(size);
  const int file = memfd_create("headrace-fake-cuda", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  void* users = MAP_FAILED;
  void* own = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(mapped)) == 0) {
    users = mmap(nullptr, mapped, PROT_NONE, MAP_SHARED, file, 0);
    own = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (users == MAP_FAILED || own == MAP_FAILED) {
    if (users != MAP_FAILED) munmap(users, mapped);
    if (own != MAP_FAILED) munmap(own, mapped);
    return nullptr;
  }
  auto range = make_range(Kind::device, size, users, own, owner);
  range->device = device;
  range->mapped = mapped;
  return range;
}

std::shared_ptr<Range> make_host_range(Kind kind, std::size_t size, const Context* owner) {
  void* memory =
      mmap(nullptr, whole_pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto range = make_range(kind, size, memory, memory, owner);
  range->mapped = whole_pages(size);
  return range;
}

std::shared_ptr<Range> make_registered_range(void* memory, std::size_t size, const Context* owner) {
  return make_range(Kind::registered, size, memory, memory, owner);
}

bool AddressSpace::add(std::shared_ptr<Range> range) {
  const MutexLock lock(mutex_);
  const auto next = ranges_.lower_bound(range->address);
  if (next != ranges_.end() && next->first - range->address < range->size) return false;
  if (next != ranges_.begin()) {
    const Range& before = *std::prev(next)->second;
    if (range->address - before.address < before.size) return false;
  }
  ranges_.emplace_hint(next, range->address, std::move(range));
  return true;
}

std::shared_ptr<Range> AddressSpace::find(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return nullptr;
  const auto& range = std::prev(next)->second;
  return address - range->address < range->size ? range : nullptr;
}

bool AddressSpace::overlaps(CUdeviceptr address, std::size_t size) const {
  if (find(address) != nullptr) return true;
  const MutexLock lock(mutex_);
  const auto next = ranges_.lower_bound(address);
  return next != ranges_.end() && next->first - address < size;
}

std::shared_ptr<Range> AddressSpace::remove(CUdeviceptr address, Kind kind) {
  const MutexLock lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second->kind != kind) return nullptr;
  std::shared_ptr<Range> range = std::move(found->second);
  ranges_.erase(found);
  return range;
}

void AddressSpace::remove_all(const Context* owner) {
  const MutexLock lock(mutex_);
  std::erase_if(ranges_, [owner](const auto& entry) { return entry.second->owner == owner; });
}

}  // namespace headrace::cuda::fake
