// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/managed/managed.h"

#include <sys/mman.h>

#include <algorithm>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

std::uint32_t bit(const Device& device) { return 1U << static_cast<unsigned>(device.ordinal()); }

// Whether the page is at its preferred location.
bool is_preferred(const ManagedPage& page) {
  switch (page.preferred.type) {
    case CU_MEM_LOCATION_TYPE_INVALID: return false;
    case CU_MEM_LOCATION_TYPE_DEVICE: return page.location == page.preferred.id;
    default: return page.location == kHost;
  }
}

bool prefers_host(const ManagedPage& page) {
  return page.preferred.type != CU_MEM_LOCATION_TYPE_INVALID &&
         page.preferred.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

}  // namespace

bool ManagedMemory::evict(Device& device, Cost& cost) {
  auto& residents = residents_[device.ordinal()];
  while (!residents.empty()) {
    const Resident first = residents.front();
    residents.pop_front();
    first.pages->all_.mutex_.assert_held();
    const ManagedPage& page = first.pages->pages_[first.index];
    if (page.location != device.ordinal() && (page.duplicates & bit(device)) == 0) continue;
    first.pages->to_host(first.index, cost);
    return true;
  }
  return false;
}

ManagedPages::ManagedPages(ManagedMemory& all, CUdeviceptr users, std::size_t size)
    : all_(all),
      users_(users),
      page_(all.settings().page),
      size_(size),
      pages_((size + page_ - 1) / page_) {}

ManagedPages::~ManagedPages() {
  const MutexLock lock(all_.mutex_);
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    drop_duplicates(i);
    leave(i);
  }
  for (auto& [device, residents] : all_.residents_) {
    std::erase_if(residents, [this](const auto& each) { return each.pages == this; });
  }
}

// Calls `body` with the index of each page, and the number of its bytes in the range.
template <class Body>
void ManagedPages::each(std::size_t offset, std::size_t size, Body body) {
  for (std::size_t at = offset; at < offset + size;) {
    const std::size_t index = at / page_;
    const std::size_t next = std::min((index + 1) * page_, offset + size);
    body(index, next - at);
    at = next;
  }
}

void ManagedPages::protect(std::size_t index, int protection) {
  const std::size_t begin = index * page_;
  const std::size_t length = std::min(page_, (size_ - begin + 4095) / 4096 * 4096);
  mprotect(reinterpret_cast<void*>(users_ + begin), length, protection);
}

// The host's first touch is no fault, so that the kernel can read into a page; mincore shows it.
void ManagedPages::find_touched(std::size_t index) {
  ManagedPage& page = pages_[index];
  if (page.populated) return;
  const std::size_t begin = index * page_;
  const std::size_t length = std::min(page_, size_ - begin);
  std::vector<unsigned char> present((length + 4095) / 4096);
  if (mincore(reinterpret_cast<void*>(users_ + begin), length, present.data()) != 0) return;
  page.populated = std::ranges::any_of(present, [](unsigned char one) { return (one & 1) != 0; });
}

// Releases the page's memory on its device.
void ManagedPages::leave(std::size_t index) {
  ManagedPage& page = pages_[index];
  if (page.location != kHost) driver().device(page.location)->give_memory(page_);
  page.location = kHost;
}

void ManagedPages::drop_duplicates(std::size_t index) {
  ManagedPage& page = pages_[index];
  for (int device = 0; page.duplicates >> device != 0; ++device) {
    if ((page.duplicates >> device & 1) != 0) driver().device(device)->give_memory(page_);
  }
  page.duplicates = 0;
}

void ManagedPages::to_host(std::size_t index, Cost& cost) {
  ManagedPage& page = pages_[index];
  drop_duplicates(index);
  if (page.location != kHost) cost.migrated += page_;
  leave(index);
  page.populated = true;
  page.mapped = page.accessed_by;
  page.accesses = 0;
  protect(index, PROT_READ | PROT_WRITE);
}

bool ManagedPages::to_device(std::size_t index, Device& device, Cost& cost) {
  ManagedPage& page = pages_[index];
  drop_duplicates(index);
  while (!device.take_memory(page_)) {
    if (!all_.evict(device, cost)) return false;
  }
  if (page.populated) cost.migrated += page_;
  leave(index);
  page.populated = true;
  page.location = device.ordinal();
  page.mapped = bit(device) | page.accessed_by;
  page.accesses = 0;
  if (all_.settings_.paradigm != Paradigm::ats) protect(index, PROT_NONE);
  all_.residents_[device.ordinal()].push_back({this, index});
  return true;
}

// Makes a read-only copy for the device; false if it has no space.
bool ManagedPages::duplicate(std::size_t index, Device& device, Cost& cost) {
  ManagedPage& page = pages_[index];
  while (!device.take_memory(page_)) {
    if (!all_.evict(device, cost)) return false;
  }
  if (page.location != kHost) {
    // The host gets a copy too, so that all copies are alike.
    const std::uint32_t owner = 1U << static_cast<unsigned>(page.location);
    page.location = kHost;
    page.duplicates |= owner;
  }
  page.duplicates |= bit(device);
  page.mapped |= bit(device);
  all_.residents_[device.ordinal()].push_back({this, index});
  cost.migrated += page_;
  protect(index, PROT_READ);  // a write by the host ends the copies
  return true;
}

void ManagedPages::touch(std::size_t index, Device& device, bool write, std::size_t bytes,
                         Cost& cost) {
  ManagedPage& page = pages_[index];
  find_touched(index);
  if (!page.populated) {
    ++cost.faults;
    if (prefers_host(page) || !to_device(index, device, cost)) to_host(index, cost);
  }
  if (write && page.duplicates != 0) {
    ++cost.faults;
    drop_duplicates(index);
    protect(index, PROT_READ | PROT_WRITE);
  }
  if (page.location == device.ordinal() || (page.duplicates & bit(device)) != 0) {
    page.mapped |= bit(device);
    return;
  }
  const bool mapped = (page.mapped & bit(device)) != 0;
  if (!mapped) ++cost.faults;
  if (page.read_mostly && !write && duplicate(index, device, cost)) return;
  const unsigned threshold = all_.settings_.access_threshold;
  const bool stays = mapped ? threshold == 0 || page.accesses + 1 < threshold || is_preferred(page)
                            : is_preferred(page);
  if (!stays && to_device(index, device, cost)) return;
  page.mapped |= bit(device);
  ++page.accesses;
  cost.remote += bytes;
}

Cost ManagedPages::device_access(Device& device, std::size_t offset, std::size_t size, bool write) {
  Cost cost;
  const MutexLock lock(all_.mutex_);
  each(offset, size, [&](std::size_t index, std::size_t bytes) {
    all_.mutex_.assert_held();
    touch(index, device, write, bytes, cost);
  });
  return cost;
}

void ManagedPages::host_access(std::size_t offset, bool write) {
  Cost unused;
  const MutexLock lock(all_.mutex_);
  const std::size_t index = offset / page_;
  ManagedPage& page = pages_[index];
  if (page.location == kHost && page.duplicates != 0 && !write) {
    protect(index, PROT_READ);
    return;
  }
  to_host(index, unused);
}

void ManagedPages::advise(std::size_t offset, std::size_t size, CUmem_advise advice,
                          CUmemLocation location) {
  const bool host = location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  const std::uint32_t device = host ? 0 : 1U << static_cast<unsigned>(location.id);
  const MutexLock lock(all_.mutex_);
  each(offset, size, [&](std::size_t index, std::size_t) {
    all_.mutex_.assert_held();
    ManagedPage& page = pages_[index];
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY: page.read_mostly = true; break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page.read_mostly = false;
        drop_duplicates(index);
        if (page.location == kHost) protect(index, PROT_READ | PROT_WRITE);
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: page.preferred = location; break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: page.preferred = {}; break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        page.accessed_by |= device;
        page.accessed_by_host = page.accessed_by_host || host;
        page.mapped |= device;
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        page.accessed_by &= ~device;
        page.accessed_by_host = page.accessed_by_host && !host;
        if (page.location == kHost) page.mapped &= ~device;
        break;
    }
  });
}

void ManagedPages::note_prefetch(std::size_t offset, std::size_t size, CUmemLocation location) {
  const MutexLock lock(all_.mutex_);
  each(offset, size, [&](std::size_t index, std::size_t) {
    all_.mutex_.assert_held();
    pages_[index].prefetched = location;
  });
}

Cost ManagedPages::prefetch(std::size_t offset, std::size_t size, Device* to) {
  Cost cost;
  const MutexLock lock(all_.mutex_);
  each(offset, size, [&](std::size_t index, std::size_t) {
    all_.mutex_.assert_held();
    const ManagedPage& page = pages_[index];
    find_touched(index);
    if (to == nullptr) {
      to_host(index, cost);
    } else if (page.location != to->ordinal() && (page.duplicates & bit(*to)) == 0) {
      const bool copied = page.read_mostly && page.populated && duplicate(index, *to, cost);
      if (!copied) to_device(index, *to, cost);
    }
  });
  return cost;
}

template <class Value>
std::optional<Value> ManagedPages::common(std::size_t offset, std::size_t size,
                                          Value ManagedPage::* field) {
  const auto same = [](const Value& a, const Value& b) {
    if constexpr (requires { a.type; }) {
      return a.type == b.type && a.id == b.id;
    } else {
      return a == b;
    }
  };
  const MutexLock lock(all_.mutex_);
  const Value first = pages_[offset / page_].*field;
  bool all = true;
  each(offset, size, [&](std::size_t index, std::size_t) {
    all_.mutex_.assert_held();
    all = all && same(pages_[index].*field, first);
  });
  return all ? std::optional(first) : std::nullopt;
}

std::optional<bool> ManagedPages::read_mostly(std::size_t offset, std::size_t size) {
  return common(offset, size, &ManagedPage::read_mostly);
}

std::optional<CUmemLocation> ManagedPages::preferred(std::size_t offset, std::size_t size) {
  return common(offset, size, &ManagedPage::preferred);
}

std::optional<CUmemLocation> ManagedPages::prefetched(std::size_t offset, std::size_t size) {
  return common(offset, size, &ManagedPage::prefetched);
}

std::vector<CUdevice> ManagedPages::accessed_by(std::size_t offset, std::size_t size) {
  std::uint32_t devices = ~0U;
  bool host = true;
  const MutexLock lock(all_.mutex_);
  each(offset, size, [&](std::size_t index, std::size_t) {
    all_.mutex_.assert_held();
    devices &= pages_[index].accessed_by;
    host = host && pages_[index].accessed_by_host;
  });
  std::vector<CUdevice> found;
  for (int device = 0; device < 32; ++device) {
    if ((devices >> device & 1) != 0) found.push_back(device);
  }
  if (host) found.push_back(CU_DEVICE_CPU);
  return found;
}

}  // namespace headrace::cuda::fake
