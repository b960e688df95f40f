// SPDX-License-Identifier: Apache-2.0
// Small objects that were freed and are used again without asking the allocator: of each size two
// stacks per thread, and a list of full stacks that its threads share, for each heap. It makes the
// usual malloc and free as cheap as the C library's, and freeing what another thread allocated as
// cheap as the rest.
//
//  1. Only the thread it belongs to touches a ThreadCache. It is emptied into the heap when that
//     thread ends, and by the thread, with the shared lists, when the heap has no more room.
//  2. A heap holds one of kCachedHeaps slots while it is open, or none: then it is not cached. A
//     cache remembers the heap by a number that is never used twice: what is left in it of a heap
//     that was closed is forgotten, not touched.
//
// Thread-safe, but for ThreadCache itself.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "core/mutex.h"

namespace headrace {

inline constexpr std::size_t kCachedHeaps = 32;    // with 256 bytes of static TLS
inline constexpr std::size_t kCachedBytes = 1024;  // largest object

// Classes of sizes: by 16 up to 128, from there four to a doubling, as oneTBB's.
inline constexpr std::size_t kSizeClasses = 20;
constexpr std::size_t class_bytes(std::size_t size_class) {
  if (size_class < 8) return (size_class + 1) * 16;
  return (5 + size_class % 4) << (size_class / 4 + 3);
}
// The smallest class with room for `size` bytes. Requires: size <= kCachedBytes.
constexpr std::size_t class_for(std::size_t size) {
  if (size <= 128) return size == 0 ? 0 : (size - 1) / 16;
  const auto doubling = static_cast<std::size_t>(std::bit_width(size - 1));  // 8: 129 to 256
  return (doubling - 6) * 4 + ((size - 1) >> (doubling - 3)) - 4;
}
// The largest class that `bytes` are enough for. Requires: 16 <= bytes <= kCachedBytes.
constexpr std::size_t class_within(std::size_t bytes) {
  const std::size_t size_class = class_for(bytes);
  return class_bytes(size_class) == bytes ? size_class : size_class - 1;
}

// An object while it is free.
struct FreeObject {
  FreeObject* below = nullptr;  // in the same stack
  FreeObject* next = nullptr;   // of a stack's top: the next stack of the list
};

class ThreadCache {
 public:
  static constexpr unsigned kDepth = 32;  // of a stack

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
    FreeObject* full = nullptr;  // the top of another stack of kDepth, or none
    unsigned depth = 0;
  };

  std::uint64_t heap_ = 0;  // what it caches; 0: nothing yet
  std::array<Stacks, kSizeClasses> of_;
};

// A heap's right to be cached, for as long as it is open, and the stacks its threads share.
class CacheSlot {
 public:
  // Gives an object back to the allocator.
  using Release = void (*)(void* pool, void* object);

  CacheSlot(void* pool, Release release);
  // What threads still have cached is theirs no more.
  ~CacheSlot();
  CacheSlot(const CacheSlot&) = delete;
  CacheSlot& operator=(const CacheSlot&) = delete;

  // A free object; nullptr: there is none, ask the allocator.
  void* pop(std::size_t size_class) {
    ThreadCache* const mine = cache();
    if (mine == nullptr) return nullptr;
    void* const object = mine->pop(size_class);
    return object != nullptr ? object : pop_from_full(*mine, size_class);
  }
  // Keeps a free object. Requires: `object` has the bytes of the class.
  void push(std::size_t size_class, void* object) {
    ThreadCache* const mine = cache();
    if (mine == nullptr) return release_(pool_, object);
    if (!mine->push(size_class, object)) push_to_new(*mine, size_class, object);
  }
  // Gives all objects of the calling thread and of the shared lists back; false: there were none.
  bool empty();

 private:
  friend class ThreadCaches;

  // A list of full stacks of one class.
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
  // nullptr: there is no stack.
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
