// SPDX-License-Identifier: Apache-2.0
// Where the fragments of blocks lie in the user's memory. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

// The extent of block i, and its position there.
struct UserBlock {
  Extent extent;
  std::size_t position = 0;
};
UserBlock user_block(std::span<const Extent> user, std::span<const std::size_t> positions,
                     std::size_t block);

// Consecutive layers of a block: their place in the user's memory and in the block.
struct Fragment {
  Extent user;
  std::uint64_t in_block;
  Bytes bytes;
};

// The offset of a layer of the block at `position` in the user's memory.
inline std::uint64_t offset_in(const Extent& user, const Geometry& geometry, Layout layout,
                               std::size_t position, unsigned layer) {
  const std::uint64_t fragment = geometry.fragment().value;
  const std::uint64_t block = geometry.block().value;
  if (layout == Layout::page_first) return position * block + layer * fragment;
  return (layer * (user.length.value / block) + position) * fragment;
}

// Appends the fragments of layers [first, first + layers) of the block at `position`.
inline void fragments(const Geometry& geometry, const Extent& user, Layout layout,
                      std::size_t position, unsigned first, unsigned layers,
                      std::vector<Fragment>& result) {
  const unsigned together = layout == Layout::page_first ? layers : 1;
  for (unsigned layer = first; layer < first + layers; layer += together) {
    const Bytes bytes = geometry.fragment() * together;
    result.push_back({.user = user.part(offset_in(user, geometry, layout, position, layer), bytes),
                      .in_block = layer * geometry.fragment().value,
                      .bytes = bytes});
  }
}

// Appends the pair. Parts of a block that are neighbours on both sides are one copy.
void add_pair(std::vector<MovePair>& pairs, const MovePair& pair);

// `user`: one extent for all blocks, or one for each. Errors: invalid: the memory or the positions
// do not fit `blocks` blocks.
Status check_user(const Geometry& geometry, std::span<const Extent> user, Layout layout,
                  std::size_t blocks, std::span<const std::size_t> positions);

// Whether two of the extents share a byte. Requires: all are memory of CPUs, or of one GPU.
bool any_overlap(std::span<const Extent> extents);

// Errors: invalid: two blocks of a load share bytes of `into`. Requires: check_user().
Status check_apart(std::span<const Extent> into, std::span<const std::size_t> positions);

}  // namespace headrace::kvcache
