// SPDX-License-Identifier: Apache-2.0
// Managed memory: the place of each page, who maps it, its advice, and the effect of accesses by a
// device or the host. The bytes themselves stay where they are. A moved page is charged to the
// memory of devices and returned as a cost.
//
// A page on a device is not mapped for the host. So the host's touch is seen, and brings it back
// (host_faults.cpp), unless the host's own loads reach the device (ATS). A system call on such a
// page fails with EFAULT, while a real driver would bring the page back.
//
// Thread-safe: one lock for all pages, since an access to one may evict another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "core/mutex.h"
#include "support/fake_cuda/settings.h"

namespace headrace::cuda::fake {

class Device;
class ManagedPages;

// The cost of an access by a device.
struct Cost {
  std::size_t faults = 0;
  std::size_t migrated = 0;  // bytes, evicted ones included
  std::size_t remote = 0;    // bytes that the device accessed over the link

  Cost& operator+=(const Cost& other) {
    faults += other.faults;
    migrated += other.migrated;
    remote += other.remote;
    return *this;
  }
};

inline constexpr int kHost = -1;

struct ManagedPage {
  int location = kHost;           // or a device's ordinal
  bool populated = false;         // it has a place
  std::uint32_t duplicates = 0;   // devices with a read-only copy
  std::uint32_t mapped = 0;       // devices that map it in their page tables
  unsigned accesses = 0;          // by devices over the link since its last move
  bool read_mostly = false;       // advised:
  std::uint32_t accessed_by = 0;  // devices
  bool accessed_by_host = false;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, 0};
  CUmemLocation prefetched{CU_MEM_LOCATION_TYPE_INVALID, 0};
};

// The pages of all ranges, and the pages on each device.
class ManagedMemory {
 public:
  explicit ManagedMemory(const Settings& settings) : settings_(settings) {}

  const Settings& settings() const { return settings_; }

 private:
  friend class ManagedPages;
  struct Resident {
    ManagedPages* pages;
    std::size_t index;
  };
  // Moves the device's oldest page away; false: it has none.
  bool evict(Device& device, Cost& cost) REQUIRES(mutex_);

  const Settings& settings_;
  Mutex mutex_;
  // Pages by device, in order of arrival; some have left since.
  std::map<int, std::deque<Resident>> residents_ GUARDED_BY(mutex_);
};

class ManagedPages {
 public:
  ManagedPages(ManagedMemory& all, CUdeviceptr users, std::size_t size);
  ~ManagedPages();

  Cost device_access(Device& device, std::size_t offset, std::size_t size, bool write);
  // For the handler of SIGSEGV: allocates nothing.
  void host_access(std::size_t offset, bool write);

  void advise(std::size_t offset, std::size_t size, CUmem_advise advice, CUmemLocation location);
  // Notes the request at once; prefetch() is the work in the stream.
  void note_prefetch(std::size_t offset, std::size_t size, CUmemLocation location);
  Cost prefetch(std::size_t offset, std::size_t size, Device* to);  // null: to the host

  // The advice that holds for all these pages; nullopt if they differ.
  std::optional<bool> read_mostly(std::size_t offset, std::size_t size);
  std::optional<CUmemLocation> preferred(std::size_t offset, std::size_t size);
  std::optional<CUmemLocation> prefetched(std::size_t offset, std::size_t size);
  std::vector<CUdevice> accessed_by(std::size_t offset, std::size_t size);

 private:
  friend class ManagedMemory;
  void touch(std::size_t index, Device& device, bool write, std::size_t bytes, Cost& cost)
      REQUIRES(all_.mutex_);
  bool duplicate(std::size_t index, Device& device, Cost& cost) REQUIRES(all_.mutex_);
  void drop_duplicates(std::size_t index) REQUIRES(all_.mutex_);
  // False if the device has no space at all.
  bool to_device(std::size_t index, Device& device, Cost& cost) REQUIRES(all_.mutex_);
  void to_host(std::size_t index, Cost& cost) REQUIRES(all_.mutex_);
  void find_touched(std::size_t index) REQUIRES(all_.mutex_);
  void leave(std::size_t index) REQUIRES(all_.mutex_);
  void protect(std::size_t index, int protection);
  template <class Body>
  void each(std::size_t offset, std::size_t size, Body body) REQUIRES(all_.mutex_);
  template <class Value>
  std::optional<Value> common(std::size_t offset, std::size_t size, Value ManagedPage::* field);

  ManagedMemory& all_;
  const CUdeviceptr users_;
  const std::size_t page_;
  const std::size_t size_;
  std::vector<ManagedPage> pages_ GUARDED_BY(all_.mutex_);
};

CUresult advise(CUdeviceptr address, std::size_t size, CUmem_advise advice, CUmemLocation location);
CUresult prefetch(CUdeviceptr address, std::size_t size, CUmemLocation location, CUstream stream);

// Watches the host's touches, once in a process (host_faults.cpp).
void watch_host();

}  // namespace headrace::cuda::fake
