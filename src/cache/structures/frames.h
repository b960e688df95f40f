// SPDX-License-Identifier: Apache-2.0
// Where copies lie: the slabs of one node and the frames cut from them.
//
// A frame is the place of one block: any length, its first byte congruent to the source's offset
// modulo 4096 (modulo 64 below 4 KiB), so that O_DIRECT can read into it without a bounce. Frames
// of a slab are linked by address through the blocks' own entries, and what is free between them is
// described in the free bytes themselves: no memory is needed besides the frame's four words. Not
// so in memory that CPUs do not reach: there an address is a number, nothing is read or written,
// gaps are described apart, at most one more than there are frames in each slab, and a frame is
// congruent to its source modulo 256, as large as loads of a GPU get.
// It does not decide who must go (eviction.h), only what would have to go together.
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
#include "headrace/buffer.h"

namespace headrace {

struct Frame {
  Frame* below = nullptr;  // neighbours in the slab
  Frame* above = nullptr;
  // Read without the lock, too (readers.h).
  Relaxed<std::byte*> data = nullptr;  // null: none
  Relaxed<std::uint64_t> length = 0;   // of the block, in bytes
};

class Frames {
 public:
  // 64 bytes, a cache line: two frames never share one, so that filling one does not disturb
  // readers of the other.
  static constexpr std::uint64_t kGranule = 64;
  // The strictest alignment that O_DIRECT asks for (logical block sizes are 512 or 4096).
  static constexpr std::uint64_t kDirect = 4096;
  // As the driver of a GPU aligns what it allocates.
  static constexpr std::uint64_t kOnGpu = 256;

  // `reached`: CPUs reach the memory it is given.
  explicit Frames(bool reached = true) : reached_(reached) {}
  Frames(Frames&&) = default;
  Frames& operator=(Frames&&) = default;

  // Takes over a slab. `owner` may be null when the memory is somebody else's. bad_alloc: nothing
  // was done.
  void add(std::span<std::byte> memory, std::unique_ptr<Buffer> owner);

  // Cuts a frame of `length` bytes for a source at `offset` from the smallest gap it fits in, the
  // lowest of equals. False: it fits nowhere. bad_alloc: nothing was taken; never where CPUs reach
  // the memory. Requires: length > 0, the frame is not in use.
  bool take(Frame& frame, std::uint64_t length, std::uint64_t offset);
  // The same without the alignment, for when there is no other space.
  bool take_unaligned(Frame& frame, std::uint64_t length);
  // Gives it back; the gap joins its neighbours. Its length stays on record.
  void give(Frame& frame);
  // While one lives, a gap that grows by one give() after the other enters the tree once. Nothing
  // is taken meanwhile.
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

  // Frames in a row, seed first, and the gap that is left when they are given back.
  struct Row {
    std::vector<Frame*> frames;
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
  };
  // Into `row` (whose memory is used again) the row with `seed` that would make space for a frame
  // if it went; false: the frames that may go (`droppable`) do not suffice.
  bool find_row(Frame& seed, std::uint64_t length, std::uint64_t offset,
                const std::function<bool(Frame&)>& droppable, Row& row) const;

  // Cuts a frame from the gap of a row. Requires: all frames of the row have been given back, and
  // nothing was taken since.
  void take_row(Frame& frame, const Row& row, std::uint64_t length, std::uint64_t offset);

  // Gives `old` back and takes `frame` in its place, without any search; false: they differ in size
  // or alignment, and nothing was done.
  bool replace(Frame& old, Frame& frame, std::uint64_t length, std::uint64_t offset);
  // Whether it would.
  bool replaceable(const Frame& old, std::uint64_t length, std::uint64_t offset) const;

  struct Slab {
    std::byte* begin = nullptr;
    std::uint64_t size = 0;      // whole granules
    std::uint64_t capacity = 0;  // as given to add()
    std::uint64_t used = 0;      // bytes of frames, in granules
    Frame* lowest = nullptr;
    mutable Frame* blocker = nullptr;  // the answer of blocker() last time
    std::unique_ptr<Buffer> owner;
  };
  // By address.
  const std::vector<Slab>& slabs() const { return slabs_; }
  // A frame of the slab that may not go; null: all may. Remembered, so that asking again while it
  // still may not is no search.
  Frame* blocker(const Slab& slab, const std::function<bool(Frame&)>& droppable) const;
  const Slab& slab_of(const Frame& frame) const;
  // A walk through the frames of all slabs, by address. Between two steps others may be taken and
  // given back, and slabs come and go; a frame that is there all the time is met.
  class Walk {
   public:
    Walk() = default;
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

   private:
    friend class Frames;
    const std::byte* slab_ = nullptr;  // where it is
    Frame* next_ = nullptr;
    Walk* other_ = nullptr;
  };
  // Null: there are no more. Requires: each walk that has begun is continued until then.
  Frame* next(Walk& walk);

  // Removes the slab that begins there. Requires: it holds no frame.
  std::unique_ptr<Buffer> remove(const std::byte* begin);

  // Frames that are taken.
  std::size_t count() const { return frames_; }
  // Bytes of all slabs, as given.
  std::uint64_t capacity() const { return capacity_; }
  // Bytes that would certainly suffice in an empty slab.
  static std::uint64_t slab_bytes(std::uint64_t length, std::uint64_t offset) {
    return length + offset % kDirect;
  }
  // The least bytes of a slab for such a budget: what looks at all slabs under the cache's lock
  // looks at 1024 of them, up to 1 TiB: some 0.1 ms.
  static std::uint64_t slab_share(std::uint64_t budget) {
    constexpr std::uint64_t kSlabs = 1024, kLargest = 1 << 30, kHugePage = 2 << 20;
    return std::min(kLargest, budget / kSlabs / kHugePage * kHugePage);
  }

 private:
  // Lies at the begin of the free bytes it describes, where CPUs reach them.
  struct Gap {
    std::byte* begin;
    std::uint64_t size;
    Gap* left;
    Gap* right;
    Frame* below;  // null: it begins the slab
  };
  struct Span {
    std::byte* begin;
    std::byte* end;
  };

  Slab& slab_at(const std::byte* address);
  const Slab& slab_at(const std::byte* address) const;
  static Span granules(const Frame& frame);
  // The free bytes directly below and above a frame, possibly none.
  Span gap_below(const Frame& frame) const;
  Span gap_above(const Frame& frame) const;
  // Requires: there is one.
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
  Walk* walks_ = nullptr;  // those that have begun
  // Where CPUs do not reach the memory.
  static constexpr std::size_t kChunk = 64;
  std::vector<std::unique_ptr<Gap[]>> chunks_;
  Gap* unused_ = nullptr;   // linked by `left`
  std::size_t frames_ = 0;  // that are taken
};

}  // namespace headrace
