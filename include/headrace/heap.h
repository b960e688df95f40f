// SPDX-License-Identifier: Apache-2.0
// Heaps over placed memory: objects of any size, for std::pmr containers and for C (malloc.h).
//
//     auto heap = headrace::Heap::open(machine, headrace::Placement::on(kind));
//     if (!heap) return headrace::Unexpected(heap.error());
//     std::pmr::vector<double> values(n, heap->get());
//
// A heap does not replace malloc: it serves only its own callers. Typical use is one heap per tier
// (hot tables in HBM, the rest in DRAM), and a SpillChain over them where the fast tier may become
// full. Basis and limits: docs/design/heap.md.
//
// A child of fork() continues with its copy of each heap, whatever other threads of the parent did.
// A heap on storage is not usable in the child, which may only destroy it (docs/design/fork.md).
//
// Thread-safe, except that one thread closes a heap after all other threads have finished with it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// A limit on the memory that heaps take from the system. Heaps with the same Budget share it.
class Budget {
 public:
  explicit Budget(Bytes limit) : limit_(limit) {}

  Bytes limit() const { return limit_; }
  Bytes used() const { return {used_.load()}; }
  // Counts `bytes` as used if they fit. Returns false, and counts nothing, if they do not.
  bool take(Bytes bytes);
  // Returns bytes to the budget. Requires: a take() of them before.
  void give(Bytes bytes) { used_ -= bytes.value; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> used_ = 0;
};

class CacheSlot;

// Notified when a heap takes memory from the system or returns it, by the thread that allocates or
// frees. Not called in a child of fork(). A function may wait, must not throw and must not use the
// heap.
class HeapObserver {
 public:
  virtual ~HeapObserver() = default;
  virtual void took(std::span<const std::byte> memory) = 0;
  // The memory is mapped until this returns.
  virtual void giving(std::span<const std::byte> memory) = 0;
};

struct HeapOptions {
  // The budget of the heap's memory, its own or a shared one. Nothing: the nodes are the limit.
  std::shared_ptr<Budget> budget = {};
  // Memory for small objects is taken from the system in pieces of this size, rounded up to the
  // placement's page size. Nothing: 2 MiB per node of the placement. Over several nodes, a piece
  // shorter than one turn of 2 MiB pages gets base pages (docs/design/placement-on-linux.md).
  std::optional<Bytes> region = {};
  // Borrowed; must outlive the heap.
  HeapObserver* observer = nullptr;
};

struct HeapStats {
  Bytes reserved;           // taken from the system now: objects, free space and headers
  std::size_t buffers = 0;  // the number of pieces in which it was taken
};

// Aligned so that a page table can store a heap and a size in one word (owners.h).
class alignas(32) Heap final : public std::pmr::memory_resource {
 public:
  // Opens a heap whose memory `placement` allocates, from the first object on; if the system
  // refuses memory then, last_error says why. A kind is resolved now, for Placement::near, else for
  // the CPU of the opening thread. Threads elsewhere need a heap of their own,
  // Distribution::first_touch or interleaving. Errors: as resolve_with_storage; exhausted: the
  // process cannot open more heaps (each takes one of about 1000 thread-specific keys).
  static Result<std::unique_ptr<Heap>> open(const Machine& machine, const Placement& placement,
                                            const HeapOptions& options = {});
  // Returns all memory to the system, including that of existing objects.
  ~Heap() override;

  // Returns memory for `size` bytes (0 counts as 1), not zeroed. nullptr: no memory; last_error
  // says why. An object of 1 MiB or more is a Buffer of its own: page-aligned, and returned to the
  // system when freed. Requires: `align` is a power of two.
  void* allocate_bytes(std::size_t size, std::size_t align = alignof(std::max_align_t)) noexcept;
  // Any thread may free an object of any other thread. Requires: from this heap, or nullptr.
  void free(void* object) noexcept;
  // As C's realloc, for `size` > 0. The contents move if necessary. nullptr: no memory, and the
  // object is unchanged. Aligned for max_align_t. Requires: as free.
  void* reallocate(void* object, std::size_t size) noexcept;

  // True if the object that begins at `object` is in this heap.
  bool owns(const void* object) const noexcept { return owner(object) == this; }
  // The usable bytes of an object, at least its requested size. Requires: owns(object).
  std::size_t usable_size(void* object) const noexcept;
  // The heap of this process that owns the object at `object`; nullptr: none.
  static Heap* owner(const void* object) noexcept;
  // free() by its owner. Returns false if it has none.
  static bool free_if_owned(void* object) noexcept;

  // The placement given to open, with its kind or property replaced by nodes.
  const Placement& placement() const;
  HeapStats stats() const;
  // The last refusal of memory, by the budget or the system, with the free memory per node. Kept
  // until the next refusal. Also set if an allocation succeeded without the refused memory.
  std::optional<Error> last_error() const;

 private:
  class Regions;
  explicit Heap(std::unique_ptr<Regions> regions);

  void* allocate_in_pool(std::size_t size, std::size_t align) noexcept;
  // For an object on a page with objects of different sizes.
  void free_from_mixed(void* object) noexcept;

  // std::pmr requires std::bad_alloc when there is no memory.
  void* do_allocate(std::size_t size, std::size_t align) override;
  void do_deallocate(void* object, std::size_t size, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  const std::unique_ptr<Regions> regions_;
  // Written only by open.
  void* pool_ = nullptr;  // the allocator's
  std::unique_ptr<CacheSlot> cache_;
};

// Heaps in order: an object is allocated in the first heap with space for it. A heap is full when
// its nodes are full or its budget is spent. Heaps that share a Budget spill only when nodes are
// full.
class SpillChain final : public std::pmr::memory_resource {
 public:
  // Borrows the heaps, which must outlive the chain. Requires: at least one.
  explicit SpillChain(const std::vector<Heap*>& heaps);

  // As Heap::allocate_bytes; nullptr: every heap is full. A heap that refused a size is skipped for
  // that size and larger ones. It is tried again after a free into it through this chain, or after
  // 1024 skips: asking a full node scans the whole system.
  void* allocate_bytes(std::size_t size, std::size_t align = alignof(std::max_align_t)) noexcept;
  // Requires: from one of the heaps, or nullptr.
  void free(void* object) noexcept;

 private:
  struct Link {
    Heap* heap = nullptr;
    std::atomic<std::size_t> refused = kNone;  // the smallest refused size
    std::atomic<unsigned> passed = 0;          // skips since the refusal
  };
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void* do_allocate(std::size_t size, std::size_t align) override;
  void do_deallocate(void* object, std::size_t size, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  std::vector<Link> links_;
};

}  // namespace HEADRACE_API headrace
