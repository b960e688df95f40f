// SPDX-License-Identifier: Apache-2.0
// How the shards of a cache share objects: an object is cut into stretches of equal length, a power
// of two, and each stretch belongs to one shard.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/cache.h"

namespace headrace {

class Stretches {
 public:
  // `bytes` and `shards` are powers of two.
  Stretches(std::uint64_t bytes, std::size_t shards)
      : mask_(shards - 1),
        shift_(static_cast<unsigned>(std::countr_zero(bytes))),
        shards_shift_(static_cast<unsigned>(std::countr_zero(shards))) {}

  std::size_t shard_of(ObjectId object, std::uint64_t offset) const {
    // As many neighbours as there are shards go to different ones; each such group begins in
    // another, or strides of a power of two would meet in one (Fibonacci hashing, as the index).
    const std::uint64_t stretch = number(offset);
    const std::uint64_t group = raw(object) * 0xbf58476d1ce4e5b9 + (stretch >> shards_shift_);
    return static_cast<std::size_t>((group * 0x9e3779b97f4a7c15 >> 32) + stretch) & mask_;
  }
  // Requires: the extent has an object.
  std::size_t shard_of(const Extent& extent) const {
    return shard_of(extent.object->id(), extent.offset);
  }
  // Whether the extent continues into the next stretch.
  bool goes_on(const Extent& extent) const {
    return ((extent.offset ^ (extent.offset + extent.length.value - 1)) >> shift_) != 0;
  }
  // The first number from there on whose extent, with its chunk of `unit` bytes, begins in a
  // stretch of the shard.
  std::uint64_t first_in(std::size_t shard, const Strided& extents, std::uint64_t from,
                         std::uint64_t unit) const {
    while (from < extents.count) {
      const std::uint64_t offset = extents.offset + from * extents.stride;
      const std::uint64_t chunk = offset / unit * unit;
      if (shard_of(extents.object->id(), chunk) == shard) return from;
      const std::uint64_t next = (begin(number(chunk) + 1) + unit - 1) / unit * unit;
      from += std::max((next - offset) / extents.stride, std::uint64_t{1});
    }
    return from;
  }
  std::uint64_t bytes() const { return std::uint64_t{1} << shift_; }
  std::uint64_t number(std::uint64_t offset) const { return offset >> shift_; }
  std::uint64_t begin(std::uint64_t number) const { return number << shift_; }
  std::size_t shards() const { return mask_ + 1; }
  std::size_t mask() const { return mask_; }

 private:
  std::size_t mask_;
  unsigned shift_;         // log2 of the bytes of a stretch
  unsigned shards_shift_;  // log2 of the shards
};

}  // namespace headrace
