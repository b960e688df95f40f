// SPDX-License-Identifier: Apache-2.0
// The place of copies: the slabs of one node and the frames cut from them. Frames do not decide
// which blocks are evicted (eviction.h), only which blocks would have to be evicted together.
//
// A frame is the place of one block, of any length. Its first byte is congruent to the source's
// offset modulo 4096 (modulo 64 below 4 KiB), so that O_DIRECT reads into it without a bounce.
// Frames of a slab are linked by address, in the entries of the blocks. A gap between frames is
// described in the free bytes themselves. So a frame needs no memory besides its four words.
//
// In memory that CPUs do not reach:
// - An address is a number; nothing is read or written.
// - Gaps are described elsewhere, at most one more per slab than it has frames.
// - A frame is congruent to its source modulo 256, the longest loads of a GPU.
//
// Invariants: frames do not share a 64-byte granule; two gaps never touch; every gap is in the
// tree.
//
// Single-thread: the cache calls it under its lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/structures/relaxed.h"
#include "headrace/object.h"

namespace headrace {

struct Frame {
  Frame* below = nullptr;  // neighbours in the slab
  Frame* above = nullptr;
  // Read without the lock too (readers.h).
  Relaxed<std::byte*> data = nullptr;  // null: none
  Relaxed<std::uint64_t> length = 0;   // of the block, in bytes
};

class Frames {
 public:
  // 64 bytes, a cache line: two frames never share one, so that filling a frame does not disturb
  // readers of the next.
  static constexpr std::uint64_t kGranule = 64;
  // The strictest alignment that O_DIRECT needs (logical block sizes are 512 or 4096).
  static constexpr std::uint64_t kDirect = 4096;
  // The alignment of allocations by a GPU's driver.
  static constexpr std::uint64_t kOnGpu = 256;

  // `reached`: CPUs reach the memory.
  explicit Frames(bool reached = true) : reached_(reached) {}
  Frames(Frames&&) = default;
  Frames& operator=(Frames&&) = default;

  // Takes over a slab. `owner` may be null if the memory belongs to the caller. Throws bad_alloc,
  // and then has done nothing.
  void add(std::span<std::byte> memory, std::shared_ptr<const Object> owner);

  // Cuts a frame of `length` bytes, for a source at `offset`, from the smallest gap that holds it,
  // the lowest of equal ones. False: no gap holds it. Throws bad_alloc, and then has taken nothing;
  // never if CPUs reach the memory. Requires: length > 0, the frame is not in use.
  bool take(Frame& frame, std::uint64_t length, std::uint64_t offset);
  // Like take() without the alignment, for when there is no other space.
  bool take_unaligned(Frame& frame, std::uint64_t length);
  // Releases a frame. Its gap is joined with its neighbours. The frame keeps its length.
  void give(Frame& frame);
  // While it lives, a gap that grows by several give() calls in succession enters the tree once. No
  // frame may be taken meanwhile.
  class GivingMany {
   public:
    explicit GivingMany(Frames& frames) : frames_(frames) { frames_.giving_many_ = true; }
    ~GivingMany() {
      frames_.giving_many_ = false;
      frames_.enter_grown();
    }
    GivingMany(const GivingMany&) = delete;
    GivingMany& operator=(const GivingMany&) = delete;

   private:
    Frames& frames_;
  };

  // Adjacent frames, seed first, and the gap that remains when they are released.
  struct Row {
    std::vector<Frame*> frames;
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
  };
  // Writes to `row` (whose memory is reused) the row around `seed` that must be released for a
  // frame. False: the `droppable` frames do not suffice.
  bool find_row(Frame& seed, std::uint64_t length, std::uint64_t offset,
                const std::function<bool(Frame&)>& droppable, Row& row) const;

  // Cuts a frame from the gap of a row. Requires: all frames of the row were released, and nothing
  // was taken since.
  void take_row(Frame& frame, const Row& row, std::uint64_t length, std::uint64_t offset);

  // Releases `old` and takes `frame` in its place, without a search. False: they differ in size or
  // alignment, and nothing was done.
  bool replace(Frame& old, Frame& frame, std::uint64_t length, std::uint64_t offset);
  // Whether replace() would succeed.
  bool replaceable(const Frame& old, std::uint64_t length, std::uint64_t offset) const;

  struct Slab {
    std::byte* begin = nullptr;
    std::uint64_t size = 0;      // whole granules
    std::uint64_t capacity = 0;  // as given to add()
    std::uint64_t used = 0;      // bytes of frames, in granules
    Frame* lowest = nullptr;
    mutable Frame* blocker = nullptr;  // the last result of blocker()
    std::shared_ptr<const Object> owner;
  };
  // In the order of their addresses.
  const std::vector<Slab>& slabs() const { return slabs_; }
  // A frame of the slab that is not droppable; null: there is none. It is remembered: while it is
  // not droppable, the next call needs no search.
  Frame* blocker(const Slab& slab, const std::function<bool(Frame&)>& droppable) const;
  const Slab& slab_of(const Frame& frame) const;
  // A walk through the frames of all slabs, by address. Between two steps frames and slabs may be
  // added and removed. A frame that stays is visited.
  class Walk {
   public:
    Walk() = default;
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

   private:
    friend class Frames;
    const std::byte* slab_ = nullptr;  // its current slab
    Frame* next_ = nullptr;
    Walk* other_ = nullptr;
  };
  // Null: there are no more. Requires: each walk that has begun is continued until then.
  Frame* next(Walk& walk);

  // Removes the slab that begins there. Requires: it holds no frame.
  std::shared_ptr<const Object> remove(const std::byte* begin);

  // The number of frames in use.
  std::size_t count() const { return frames_; }
  // Bytes of all slabs, as given to add().
  std::uint64_t capacity() const { return capacity_; }
  // Bytes of an empty slab that certainly hold the block.
  static std::uint64_t slab_bytes(std::uint64_t length, std::uint64_t offset) {
    return length + offset % kDirect;
  }
  // The least bytes of a slab for such a budget. A loop over all slabs under the cache's lock then
  // visits 1024 of them, for budgets up to 1 TiB: about 0.1 ms.
  static std::uint64_t slab_share(std::uint64_t budget) {
    constexpr std::uint64_t kSlabs = 1024, kLargest = 1 << 30, kHugePage = 2 << 20;
    return std::min(kLargest, budget / kSlabs / kHugePage * kHugePage);
  }

 private:
  // If CPUs reach the memory, it lies at the begin of the free bytes that it describes.
  struct Gap {
    std::byte* begin;
    std::uint64_t size;
    Gap* left;
    Gap* right;
    Frame* below;  // null: the gap is at the begin of the slab
  };
  struct Span {
    std::byte* begin;
    std::byte* end;
  };

  Slab& slab_at(const std::byte* address);
  const Slab& slab_at(const std::byte* address) const;
  static Span granules(const Frame& frame);
  // The free bytes directly below and above a frame; they may be empty.
  Span gap_below(const Frame& frame) const;
  Span gap_above(const Frame& frame) const;
  // Requires: there is a gap.
  Gap& gap_of(Span bytes) const;
  void reserve_gaps(std::size_t most);
  std::uint64_t modulus_of(std::uint64_t length) const;
  static std::byte* fit(Span gap, std::uint64_t length, std::uint64_t offset,
                        std::uint64_t modulus);
  bool take(Frame& frame, std::uint64_t length, std::uint64_t offset, std::uint64_t modulus);
  void take_out(Span gap);
  void enter_grown();
  void pass(const Frame& frame, Frame* to);
  void cut(Gap& gap, Frame& frame, std::byte* data, std::uint64_t length);
  void add_gap(Span bytes, Frame* below);

  static bool less(const Gap* gap, std::uint64_t size, const std::byte* address);
  static Gap* merge(Gap* low, Gap* high);
  static void split(Gap* root, std::uint64_t size, const std::byte* address, Gap*& low, Gap*& high);
  void insert_gap(Gap& gap);
  void erase_gap(Gap& gap);
  Gap* at_least(std::uint64_t size, const std::byte* address) const;

  bool reached_;
  std::vector<Slab> slabs_;
  std::uint64_t capacity_ = 0;
  Gap* root_ = nullptr;  // a treap by (size, address)
  // A gap that is in no tree yet.
  struct Grown {
    Span bytes{};
    Frame* below = nullptr;
  };
  Grown grown_;
  bool giving_many_ = false;
  Walk* walks_ = nullptr;  // that have begun
  // For memory that CPUs do not reach.
  static constexpr std::size_t kChunk = 64;
  std::vector<std::unique_ptr<Gap[]>> chunks_;
  Gap* unused_ = nullptr;   // linked by `left`
  std::size_t frames_ = 0;  // in use
};

}  // namespace headrace
