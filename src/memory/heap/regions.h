// SPDX-License-Identifier: Apache-2.0
// The memory of one heap: buffers taken from the system within a budget, and why one was refused.
//
// Two uses: regions, which the allocator cuts into small objects, and large objects, each a buffer
// of its own. Thread-safe.
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

// From this size an object is a buffer of its own: the allocator would round it up by as much as an
// eighth, and keep it when it is freed.
inline constexpr std::size_t kLargeObject = std::size_t{1} << 20;

// From this size it may be one, where there is no room for more.
inline constexpr std::size_t kOwnPages = std::size_t{8} << 10;

class Heap::Regions {
 public:
  // Requires: the placement is resolved.
  Regions(const Machine& machine, Placement placement, const HeapOptions& options);
  // Where the process has not the memory, what was taken stays as it is.
  ~Regions();

  // Memory for the allocator: at least `bytes`, set to how many it got. nullptr: refused.
  void* take_region(Heap* owner, std::size_t& bytes);
  // Memory for one object. nullptr: refused.
  void* take_object(Heap* owner, std::size_t size, std::size_t align);
  // Gives back what begins at `begin`. Requires: taken here.
  void give(const void* begin);
  // Gives back all that is left.
  void give_all();
  // Bytes of `object`. Requires: taken by take_object.
  std::size_t size_of(const void* object) const;

  const Placement& placement() const { return placement_; }
  // Whether this process has the memory: a child has none on storage.
  bool here() const { return !in_file_ || origin_.here(); }
  // What every buffer is a multiple of.
  std::size_t unit() const { return unit_; }
  HeapStats stats() const;
  std::optional<Error> last_error() const;

 private:
  struct Taken {
    std::unique_ptr<Buffer> buffer;
    std::span<const std::byte> owned;  // the pages entered for its owner
  };

  // Within the budget; nullptr: refused.
  std::unique_ptr<Buffer> take(std::size_t bytes, std::size_t align = 1);
  void keep(void* begin, Taken taken, Heap* owner, PageUse use);
  void release(Taken taken);
  // Whom to tell; nullptr: nobody, as in a child.
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
