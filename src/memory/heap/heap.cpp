// SPDX-License-Identifier: Apache-2.0
// Heap: small objects in a oneTBB memory pool, large ones in buffers of their own.

#include "headrace/heap.h"

#include <oneapi/tbb/scalable_allocator.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/sanitizers.h"
#include "memory/heap/gate.h"
#include "memory/heap/owners.h"
#include "memory/heap/regions.h"
#include "memory/heap/thread_cache.h"
#include "memory/layout.h"

#if defined(HEADRACE_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace headrace {
namespace {

// oneTBB is not instrumented: ThreadSanitizer does not see that memory passes from the thread that
// freed or mapped it to the thread that gets it next. These two functions only declare that order.
void order_free(void* pool) {
#if defined(HEADRACE_TSAN)
  __tsan_release(pool);
#else
  (void)pool;
#endif
}
void order_allocate(void* pool) {
#if defined(HEADRACE_TSAN)
  __tsan_acquire(pool);
#else
  (void)pool;
#endif
}

// The pool's alignment of objects of more than 8 bytes.
constexpr std::size_t kPoolAlign = 16;

rml::MemoryPool* pool_of(void* pool) { return static_cast<rml::MemoryPool*>(pool); }

void free_in_pool(void* pool, void* object) {
  const HeapGate gate;
  order_free(pool);
  note_back(object);
  rml::pool_free(pool_of(pool), object);
}

bool is_large(std::size_t size, std::size_t align) {
  return size >= kLargeObject || align >= kLargeObject || size + align > kLargeObject;
}

}  // namespace

Heap::Heap(std::unique_ptr<Regions> regions) : regions_(std::move(regions)) {}

Heap::~Heap() {
  cache_.reset();
  if (!regions_->here()) return;
  const HeapGate gate;
  if (pool_ != nullptr) rml::pool_destroy(pool_of(pool_));
  regions_->give_all();
}

Result<std::unique_ptr<Heap>> Heap::open(const Machine& machine, const Placement& placement,
                                         const HeapOptions& options) {
  HEADRACE_TRY(Placement resolved, resolve_with_storage(machine, placement, calling_node(machine)));
  if (const Node* gpu = gpu_of(machine, resolved)) {
    return fail(ErrorCode::unsupported,
                "a heap holds objects for CPUs, which do not reach the memory of {}; place it on "
                "another node, and copy what the GPU needs",
                gpu->name);
  }
  std::unique_ptr<Heap> heap(
      new Heap(std::make_unique<Regions>(machine, std::move(resolved), options)));

  const rml::MemPoolPolicy policy(
      [](std::intptr_t self, std::size_t& bytes) noexcept {
        Heap* owner = std::bit_cast<Heap*>(self);
        void* const region = owner->regions_->take_region(owner, bytes);
        order_free(owner->pool_);
        return region;
      },
      [](std::intptr_t self, void* begin, std::size_t) noexcept {
        std::bit_cast<Heap*>(self)->regions_->give(begin);
        return 0;
      },
      heap->regions_->unit());
  const HeapGate gate;
  rml::MemoryPool* pool = nullptr;
  if (rml::pool_create_v1(std::bit_cast<std::intptr_t>(heap.get()), &policy, &pool) !=
      rml::POOL_OK) {
    return fail(ErrorCode::exhausted,
                "no room for another heap: each takes a thread-specific key of the process, which "
                "has about 1000; share heaps, or close some");
  }
  heap->pool_ = pool;
  heap->cache_ = std::make_unique<CacheSlot>(pool, free_in_pool);
  return heap;
}

void* Heap::allocate_bytes(std::size_t size, std::size_t align) noexcept {
  DCHECK(std::has_single_bit(align));
  if (size <= kCachedBytes && align <= kPoolAlign) {
    const std::size_t size_class = class_for(size);
    void* const object = cache_->pop(size_class);
    return object != nullptr ? object : allocate_in_pool(class_bytes(size_class), kPoolAlign);
  }
  if (is_large(size, align)) return regions_->take_object(this, size, align);
  // At least `align`: an object's declared size may be too small for a class.
  return allocate_in_pool(std::max(size, align), align);
}

void* Heap::allocate_in_pool(std::size_t size, std::size_t align) noexcept {
  const HeapGate gate;
  void* object = nullptr;
  do {
    object = align <= kPoolAlign ? rml::pool_malloc(pool_of(pool_), size)
                                 : rml::pool_aligned_malloc(pool_of(pool_), size, align);
  } while (object == nullptr && cache_->empty());
  order_allocate(pool_);
  // The pool needs MiB to cut such an object from; with less left, it gets pages of its own.
  if (object == nullptr && size >= kOwnPages) return regions_->take_object(this, size, align);
  if (object == nullptr) return nullptr;
  const std::size_t usable = rml::pool_msize(pool_of(pool_), object);
  CHECK(usable >= class_bytes(0));
  note_out(object, usable <= kCachedBytes ? use_of_class(class_within(usable)) : PageUse::several);
  return object;
}

void Heap::free(void* object) noexcept {
  if (object == nullptr) return;
  DCHECK(owns(object));
  free_if_owned(object);
}

bool Heap::free_if_owned(void* object) noexcept {
  const PageOwner page = owner_of(object);
  if (page.heap == nullptr) return false;
  if (page.has_class()) {
    page.heap->cache_->push(page.size_class(), object);
  } else if (page.use == PageUse::large) {
    page.heap->regions_->give(object);
  } else {
    page.heap->free_from_mixed(object);
  }
  return true;
}

void Heap::free_from_mixed(void* object) noexcept {
  const std::size_t usable = rml::pool_msize(pool_of(pool_), object);
  if (usable <= kCachedBytes) {
    cache_->push(class_within(usable), object);
  } else {
    free_in_pool(pool_, object);
  }
}

void* Heap::reallocate(void* object, std::size_t size) noexcept {
  if (object == nullptr) return allocate_bytes(size);
  const std::size_t usable = usable_size(object);
  // Keeps the object in place, unless half of it or more would be unused.
  if (size <= usable && size > usable / 2) return object;
  void* const moved = allocate_bytes(size);
  if (moved == nullptr) return size <= usable ? object : nullptr;
  std::memcpy(moved, object, std::min(size, usable));
  free(object);
  return moved;
}

std::size_t Heap::usable_size(void* object) const noexcept {
  DCHECK(owns(object));
  const bool large = owner_of(object).use == PageUse::large;
  return large ? regions_->size_of(object) : rml::pool_msize(pool_of(pool_), object);
}

Heap* Heap::owner(const void* object) noexcept { return owner_of(object).heap; }

const Placement& Heap::placement() const { return regions_->placement(); }

HeapStats Heap::stats() const { return regions_->stats(); }

std::optional<Error> Heap::last_error() const { return regions_->last_error(); }

void* Heap::do_allocate(std::size_t size, std::size_t align) {
  void* const object = allocate_bytes(size, align);
  // The null resource throws, as the standard demands of a resource that is out of memory.
  return object != nullptr ? object : std::pmr::null_memory_resource()->allocate(size, align);
}

void Heap::do_deallocate(void* object, std::size_t size, std::size_t align) {
  if (size > kCachedBytes || align > kPoolAlign) return free(object);
  DCHECK(owns(object));
  cache_->push(class_for(size), object);
}

bool Heap::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return this == &other;
}

}  // namespace headrace
