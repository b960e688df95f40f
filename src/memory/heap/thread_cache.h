// SPDX-License-Identifier: Apache-2.0
// Per-thread caches of freed small objects, so that a usual malloc and free cost as little as in
// the C library, also when another thread frees. Per size class a thread has two stacks, and each
// heap has a list of full stacks that its threads share.
//
//  1. A ThreadCache is touched only by its own thread. It is emptied into the heap when that thread
//     ends. When the heap is full, the thread empties its cache and the shared lists.
//  2. An open heap holds one of kCachedHeaps slots, or none; without a slot it is not cached. A
//     cache remembers its heap by a number that is never reused. Objects of a closed heap that are
//     left in a cache are forgotten, not touched.
//
// Thread-safe, except ThreadCache itself.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "core/mutex.h"

namespace headrace {

inline constexpr std::size_t kCachedHeaps = 32;    // takes 256 bytes of static TLS
inline constexpr std::size_t kCachedBytes = 1024;  // largest cached object

// Size classes as in oneTBB: steps of 16 up to 128, then four per doubling.
inline constexpr std::size_t kSizeClasses = 20;
constexpr std::size_t class_bytes(std::size_t size_class) {
  if (size_class < 8) return (size_class + 1) * 16;
  return (5 + size_class % 4) << (size_class / 4 + 3);
}
// The smallest class that holds `size` bytes. Requires: size <= kCachedBytes.
constexpr std::size_t class_for(std::size_t size) {
  if (size <= 128) return size == 0 ? 0 : (size - 1) / 16;
  const auto doubling = static_cast<std::size_t>(std::bit_width(size - 1));  // 8: 129 to 256 bytes
  return (doubling - 6) * 4 + ((size - 1) >> (doubling - 3)) - 4;
}
// The largest class of at most `bytes`. Requires: 16 <= bytes <= kCachedBytes.
constexpr std::size_t class_within(std::size_t bytes) {
  const std::size_t size_class = class_for(bytes);
  return class_bytes(size_class) == bytes ? size_class : size_class - 1;
}

// A freed object, linked into a stack.
struct FreeObject {
  FreeObject* below = nullptr;  // in the same stack
  FreeObject* next = nullptr;   // in the top of a stack: the next stack of the list
};

class ThreadCache {
 public:
  static constexpr unsigned kDepth = 32;  // objects in a full stack

  // nullptr: empty.
  void* pop(std::size_t size_class) {
    Stacks& stacks = of_[size_class];
    FreeObject* const object = stacks.top;
    if (object == nullptr) return nullptr;
    --stacks.depth;
    stacks.top = object->below;
    return object;
  }
  // False: full. Requires: `object` has the bytes of the class.
  bool push(std::size_t size_class, void* object) {
    Stacks& stacks = of_[size_class];
    if (stacks.depth == kDepth) return false;
    ++stacks.depth;
    stacks.top = new (object) FreeObject{.below = stacks.top};
    return true;
  }

 private:
  friend class CacheSlot;
  friend class ThreadCaches;

  struct Stacks {
    FreeObject* top = nullptr;
    FreeObject* full = nullptr;  // the top of another stack of kDepth objects, or nullptr
    unsigned depth = 0;
  };

  std::uint64_t heap_ = 0;  // the number of the cached heap; 0: none yet
  std::array<Stacks, kSizeClasses> of_;
};

// A heap's slot while it is open, and the stacks that its threads share.
class CacheSlot {
 public:
  // Returns an object to the allocator.
  using Release = void (*)(void* pool, void* object);

  CacheSlot(void* pool, Release release);
  // Objects that are still in threads' caches are forgotten.
  ~CacheSlot();
  CacheSlot(const CacheSlot&) = delete;
  CacheSlot& operator=(const CacheSlot&) = delete;

  // Returns a free object; nullptr: none cached, ask the allocator.
  void* pop(std::size_t size_class) {
    ThreadCache* const mine = cache();
    if (mine == nullptr) return nullptr;
    void* const object = mine->pop(size_class);
    return object != nullptr ? object : pop_from_full(*mine, size_class);
  }
  // Caches a free object. Requires: `object` has the bytes of the class.
  void push(std::size_t size_class, void* object) {
    ThreadCache* const mine = cache();
    if (mine == nullptr) return release_(pool_, object);
    if (!mine->push(size_class, object)) push_to_new(*mine, size_class, object);
  }
  // Returns all objects of the calling thread and of the shared lists to the allocator; false:
  // there were none.
  bool empty();

 private:
  friend class ThreadCaches;

  // The shared list of full stacks of one class.
  struct SharedStacks {
    Mutex mutex;
    FreeObject* top GUARDED_BY(mutex) = nullptr;
    std::size_t stacks GUARDED_BY(mutex) = 0;
  };

  // The calling thread's cache; nullptr: it has none.
  ThreadCache* cache();
  ThreadCache* enter();
  void* pop_from_full(ThreadCache& cache, std::size_t size_class);
  void push_to_new(ThreadCache& cache, std::size_t size_class, void* object);
  // nullptr: the list is empty.
  FreeObject* take_stack(SharedStacks& list);
  bool release_stack(FreeObject* top) const;
  bool empty(ThreadCache& cache) const;

  const std::uint64_t number_;
  void* const pool_;
  const Release release_;
  std::optional<std::size_t> slot_;  // written by the constructor
  std::array<SharedStacks, kSizeClasses> shared_;
};

static_assert(sizeof(FreeObject) <= class_bytes(0) &&
              class_bytes(kSizeClasses - 1) == kCachedBytes);

}  // namespace headrace
