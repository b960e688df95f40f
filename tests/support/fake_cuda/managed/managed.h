// SPDX-License-Identifier: Apache-2.0
// Managed memory: where each page is, who maps it, what was advised of it, and what an access by a
// device or the host does to that. The bytes themselves stay where they are; what moves is charged
// to the memory of devices and told as a cost.
//
// A page that is on a device is not mapped for the host, so that the host's touch is seen and
// brings it back (host_faults.cpp), unless the device is reached by the host's own loads (ATS). A
// system call that is given such a page fails with EFAULT where a real driver would bring it back.
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

// What an access by a device took.
struct Cost {
  std::size_t faults = 0;
  std::size_t migrated = 0;  // bytes, evicted ones included
  std::size_t remote = 0;    // bytes that the device reached over the link

  Cost& operator+=(const Cost& other) {
    faults += other.faults;
    migrated += other.migrated;
    remote += other.remote;
    return *this;
  }
};

inline constexpr int kHost = -1;

struct ManagedPage {
  int location = kHost;           // or the ordinal of a device
  bool populated = false;         // it is somewhere
  std::uint32_t duplicates = 0;   // devices that have a copy to read
  std::uint32_t mapped = 0;       // devices in whose page tables it is
  unsigned accesses = 0;          // by devices over the link, since it last moved
  bool read_mostly = false;       // advised:
  std::uint32_t accessed_by = 0;  // devices
  bool accessed_by_host = false;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, 0};
  CUmemLocation prefetched{CU_MEM_LOCATION_TYPE_INVALID, 0};
};

// The pages of all ranges, and which of them are on which device.
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
  // Moves the page that came first away from the device; false: there is none.
  bool evict(Device& device, Cost& cost) REQUIRES(mutex_);

  const Settings& settings_;
  Mutex mutex_;
  // By device, in the order of arrival; some have left since.
  std::map<int, std::deque<Resident>> residents_ GUARDED_BY(mutex_);
};

class ManagedPages {
 public:
  ManagedPages(ManagedMemory& all, CUdeviceptr users, std::size_t size);
  ~ManagedPages();

  Cost device_access(Device& device, std::size_t offset, std::size_t size, bool write);
  // From the handler of SIGSEGV: allocates nothing.
  void host_access(std::size_t offset, bool write);

  void advise(std::size_t offset, std::size_t size, CUmem_advise advice, CUmemLocation location);
  // Notes the request at once; `prefetch` is what happens in the stream.
  void note_prefetch(std::size_t offset, std::size_t size, CUmemLocation location);
  Cost prefetch(std::size_t offset, std::size_t size, Device* to);  // null: to the host

  // What holds of all these pages; nullopt where they differ.
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
  // False where the device has no room at all.
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

// Makes touches of the host be seen, once in a process (host_faults.cpp).
void watch_host();

}  // namespace headrace::cuda::fake
