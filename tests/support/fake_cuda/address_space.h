// SPDX-License-Identifier: Apache-2.0
// The fake driver's memory, by address: device, host (also registered) and managed memory. Any
// other memory is pageable host memory.
//
// Device memory is mapped twice. At the address that users see no access is allowed, so that code
// that forgets to copy faults. The fake itself reads and writes it at the other address.
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

inline CUdeviceptr as_address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

enum class Kind { device, host, registered, managed };

// The latest advice and prefetch of managed memory. The memory itself never moves.
struct Advice {
  Mutex mutex;
  bool read_mostly GUARDED_BY(mutex) = false;
  CUdevice preferred GUARDED_BY(mutex) = CU_DEVICE_INVALID;
  CUdevice accessed_by GUARDED_BY(mutex) = CU_DEVICE_INVALID;
  CUdevice prefetched GUARDED_BY(mutex) = CU_DEVICE_INVALID;
};

struct Range {
  Kind kind = Kind::device;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  std::byte* bytes = nullptr;  // where the fake itself accesses the bytes
  const Context* owner = nullptr;
  int device = -1;         // ordinal, for device memory
  std::size_t mapped = 0;  // bytes to unmap at both places; 0: not ours
  Advice advice;           // for managed memory

  Range() = default;
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  std::byte* at(CUdeviceptr where) const { return bytes + (where - address); }
  bool contains(CUdeviceptr begin, std::size_t length) const {
    return begin >= address && begin - address <= size && length <= size - (begin - address);
  }
};

// Null if the system has no memory.
std::shared_ptr<Range> make_device_range(std::size_t size, int device, const Context* owner);
std::shared_ptr<Range> make_registered_range(void* memory, std::size_t size, const Context* owner);
// Pinned or managed memory.
std::shared_ptr<Range> make_host_range(Kind kind, std::size_t size, const Context* owner);

class AddressSpace {
 public:
  // False if it overlaps another range.
  bool add(std::shared_ptr<Range> range);
  // Returns the range that contains the address, or null.
  std::shared_ptr<Range> find(CUdeviceptr address) const;
  // Whether any of these bytes is known.
  bool overlaps(CUdeviceptr address, std::size_t size) const;
  // Null unless a range of this kind begins there.
  std::shared_ptr<Range> remove(CUdeviceptr address, Kind kind);
  void remove_all(const Context* owner);

 private:
  mutable Mutex mutex_;
  std::map<CUdeviceptr, std::shared_ptr<Range>> ranges_ GUARDED_BY(mutex_);
};

}  // namespace headrace::cuda::fake
