// SPDX-License-Identifier: Apache-2.0
// The memory of one heap: buffers taken from the system within a budget, and the last refusal.
//
// Buffers serve as regions, which the allocator cuts into small objects, or hold one large object
// each. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/buffer.h"
#include "headrace/heap.h"
#include "memory/heap/owners.h"

namespace headrace {

// Objects of this size or more get a buffer of their own. The allocator would round them up by as
// much as an eighth, and keep their memory when they are freed.
inline constexpr std::size_t kLargeObject = std::size_t{1} << 20;

// Objects of this size or more may get a buffer of their own when the budget allows no region.
inline constexpr std::size_t kOwnPages = std::size_t{8} << 10;

class Heap::Regions {
 public:
  // Requires: the placement is resolved.
  Regions(const Machine& machine, Placement placement, const HeapOptions& options);
  // Leaves the memory untouched in a process that does not have it (a child of fork()).
  ~Regions();

  // Returns memory for the allocator, at least `bytes`, and sets `bytes` to its size. nullptr:
  // refused.
  void* take_region(Heap* owner, std::size_t& bytes);
  // Returns memory for one object. nullptr: refused.
  void* take_object(Heap* owner, std::size_t size, std::size_t align);
  // Frees the buffer that begins at `begin`. Requires: taken here.
  void give(const void* begin);
  // Frees all remaining buffers.
  void give_all();
  // Size of `object` in bytes. Requires: taken by take_object.
  std::size_t size_of(const void* object) const;

  const Placement& placement() const { return placement_; }
  // Whether this process has the memory. A child of fork() has none that is on storage.
  bool here() const { return !in_file_ || origin_.here(); }
  // Every buffer is a multiple of this size.
  std::size_t unit() const { return unit_; }
  HeapStats stats() const;
  std::optional<Error> last_error() const;

 private:
  struct Taken {
    std::unique_ptr<Buffer> buffer;
    std::span<const std::byte> owned;  // the pages entered for the buffer's owner
  };

  // Allocates within the budget; nullptr: refused.
  std::unique_ptr<Buffer> take(std::size_t bytes, std::size_t align = 1);
  void keep(void* begin, Taken taken, Heap* owner, PageUse use);
  void release(Taken taken);
  // The observer to call; nullptr: none, as in a child of fork().
  HeapObserver* observer() const { return origin_.here() ? observer_ : nullptr; }

  // Immutable.
  const Origin origin_;
  const bool in_file_;
  const Machine machine_;
  const Placement placement_;
  const std::shared_ptr<Budget> budget_;
  HeapObserver* const observer_;  // may be nullptr
  const std::size_t unit_;
  const std::size_t region_;

  mutable Mutex mutex_;
  std::map<const void*, Taken> taken_ GUARDED_BY(mutex_);
  Bytes reserved_ GUARDED_BY(mutex_);
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace headrace
