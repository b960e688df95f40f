// SPDX-License-Identifier: Apache-2.0
// The memory that the fake driver knows, by address: of devices, of the host and registered,
// managed. What is not here is pageable memory of the host.
//
// Memory of a device is mapped twice: where users see it no access is allowed, so that one who
// forgets to copy faults, and somewhere else the fake itself reads and writes it.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "backend/cuda/driver_api.h"
#include "core/mutex.h"

namespace headrace::cuda::fake {

class Context;
class ManagedPages;

inline CUdeviceptr as_address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

enum class Kind { device, host, registered, managed };

struct Range {
  Kind kind = Kind::device;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  std::byte* bytes = nullptr;  // where the fake itself finds them
  const Context* owner = nullptr;
  int device = -1;                      // ordinal, of what a device holds
  std::size_t mapped = 0;               // bytes to unmap at both places; 0: not ours
  std::unique_ptr<ManagedPages> pages;  // of managed memory

  Range();
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  std::byte* at(CUdeviceptr where) const { return bytes + (where - address); }
  bool contains(CUdeviceptr begin, std::size_t length) const {
    return begin >= address && begin - address <= size && length <= size - (begin - address);
  }
};

// Null when the system has no memory.
std::shared_ptr<Range> make_device_range(std::size_t size, int device, const Context* owner);
std::shared_ptr<Range> make_host_range(std::size_t size, const Context* owner);
std::shared_ptr<Range> make_managed_range(std::size_t size, const Context* owner);

class AddressSpace {
 public:
  // False when it overlaps another.
  bool add(std::shared_ptr<Range> range);
  // The one that holds the address; null where there is none.
  std::shared_ptr<Range> find(CUdeviceptr address) const;
  // Whether any of these bytes is known.
  bool overlaps(CUdeviceptr address, std::size_t size) const;
  // Null unless one of this kind begins there.
  std::shared_ptr<Range> remove(CUdeviceptr address, Kind kind);
  void remove_all(const Context* owner);

 private:
  mutable Mutex mutex_;
  std::map<CUdeviceptr, std::shared_ptr<Range>> ranges_ GUARDED_BY(mutex_);
};

}  // namespace headrace::cuda::fake
