// SPDX-License-Identifier: Apache-2.0
// Heaps over placed memory: objects of any size, for std::pmr containers and for C (malloc.h), in
// memory that a Placement chose.
//
// A heap is not a replacement for malloc: nothing comes from it that was not asked of it. On a real
// machine a heap per tier is what one wants (hot tables in HBM, the rest in DRAM), a SpillChain
// over them where the fast one may fill up. docs/design/heap.md says what it stands on and what it
// cannot do. A child of fork() goes on with its copy of each heap, whatever other threads of the
// parent did; of a heap on storage it has nothing, and may only destroy it
// (docs/design/fork.md).
//
// Thread-safe, except that a heap is closed by one thread after all others are done with it.
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

// How much heaps may take from the system together: all that hold the same one spend it.
class Budget {
 public:
  explicit Budget(Bytes limit) : limit_(limit) {}

  Bytes limit() const { return limit_; }
  Bytes used() const { return {used_.load()}; }
  // Counts `bytes` as used if they fit; false, and nothing counted, if not.
  bool take(Bytes bytes);
  // Requires: taken before.
  void give(Bytes bytes) { used_ -= bytes.value; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> used_ = 0;
};

class CacheSlot;

// Told of the memory that a heap takes from the system and gives back, by the thread that allocates
// or frees; not in a child of fork(). It may wait, must not throw and must not use the heap.
class HeapObserver {
 public:
  virtual ~HeapObserver() = default;
  virtual void took(std::span<const std::byte> memory) = 0;
  // Still mapped until this returns.
  virtual void giving(std::span<const std::byte> memory) = 0;
};

struct HeapOptions {
  // What the heap's memory counts against, its own or shared; nothing: the nodes are the limit.
  std::shared_ptr<Budget> budget = {};
  // The memory small objects are cut from is taken this much at a time, rounded up to the size of
  // the placement's pages; nothing: 2 MiB for each node of the placement. Over several nodes less
  // than one turn of 2 MiB pages gets base pages (docs/design/placement-on-linux.md).
  std::optional<Bytes> region = {};
  // Borrowed; must outlive the heap.
  HeapObserver* observer = nullptr;
};

struct HeapStats {
  Bytes reserved;           // taken from the system now; objects, free room and headers
  std::size_t buffers = 0;  // in so many pieces
};

// Aligned so that a table of pages can tell a heap and a size in one word (owners.h).
class alignas(32) Heap final : public std::pmr::memory_resource {
 public:
  // A heap whose memory is allocated by `placement`, from the first object on; what the system
  // refuses then is in last_error. A kind is resolved now, for Placement::near, else for the CPU of
  // the thread that opens the heap: threads elsewhere want a heap of their own, or
  // Dealing::first_touch, or to interleave. Errors as of
  // resolve_with_storage, and exhausted when the process has no more room for heaps (each takes one
  // of its about 1000 thread-specific keys).
  static Result<std::unique_ptr<Heap>> open(const Machine& machine, const Placement& placement,
                                            const HeapOptions& options = {});
  // Gives all memory back, that of objects still there included.
  ~Heap() override;

  // Memory for `size` bytes (0 counts as 1), not zeroed; nullptr when there is no room: last_error
  // says why. From 1 MiB an object is a Buffer of its own, page-aligned and returned to the system
  // when freed. Requires: `align` is a power of two.
  void* allocate_bytes(std::size_t size, std::size_t align = alignof(std::max_align_t)) noexcept;
  // Any thread may free what any thread allocated. Requires: from this heap, or nullptr.
  void free(void* object) noexcept;
  // As C's realloc, for `size` > 0: the contents move if they must; nullptr when there is no room,
  // and the object stays as it was. Aligned for max_align_t. Requires: as free.
  void* reallocate(void* object, std::size_t size) noexcept;

  // Whether `object`, the beginning of an object somewhere, lies here.
  bool owns(const void* object) const noexcept { return owner(object) == this; }
  // Bytes that may be used, at least what was asked for. Requires: owns(object).
  std::size_t usable_size(void* object) const noexcept;
  // The heap of this process in which `object` begins; nullptr: none.
  static Heap* owner(const void* object) noexcept;
  // As `free` of its owner; false: it has none.
  static bool free_if_owned(void* object) noexcept;

  // As it was given to open, its kind or property replaced by nodes.
  const Placement& placement() const;
  HeapStats stats() const;
  // Why memory was last refused, by the budget or the system, with what was free where. Kept until
  // the next refusal; an allocation that got by without that memory leaves one too.
  std::optional<Error> last_error() const;

 private:
  class Regions;
  explicit Heap(std::unique_ptr<Regions> regions);

  void* allocate_in_pool(std::size_t size, std::size_t align) noexcept;
  // The object's page has objects of different sizes.
  void free_from_mixed(void* object) noexcept;

  // What std::pmr demands: std::bad_alloc when there is no room.
  void* do_allocate(std::size_t size, std::size_t align) override;
  void do_deallocate(void* object, std::size_t size, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  const std::unique_ptr<Regions> regions_;
  // Written only by open.
  void* pool_ = nullptr;  // the allocator's
  std::unique_ptr<CacheSlot> cache_;
};

// Heaps in order: an object goes to the first that has room for it. Heaps that share a Budget spill
// when a node is full; where each has its own, also when that is spent.
class SpillChain final : public std::pmr::memory_resource {
 public:
  // Borrows the heaps, which must outlive it. Requires: at least one.
  explicit SpillChain(const std::vector<Heap*>& heaps);

  // As Heap::allocate_bytes; nullptr when none has room. A heap that refused a size is passed over
  // for that and larger ones until something is freed into it through this chain, or 1024 times:
  // asking a full node costs a look at the whole system.
  void* allocate_bytes(std::size_t size, std::size_t align = alignof(std::max_align_t)) noexcept;
  // Requires: from one of the heaps, or nullptr.
  void free(void* object) noexcept;

 private:
  struct Link {
    Heap* heap = nullptr;
    std::atomic<std::size_t> refused = kNone;  // the smallest size it had no room for
    std::atomic<unsigned> passed = 0;          // times it was passed over since
  };
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void* do_allocate(std::size_t size, std::size_t align) override;
  void do_deallocate(void* object, std::size_t size, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  std::vector<Link> links_;
};

}  // namespace HEADRACE_API headrace
