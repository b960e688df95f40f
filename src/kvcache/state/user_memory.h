// SPDX-License-Identifier: Apache-2.0
// Where the fragments of blocks lie in the user's memory. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/fail.h"
#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

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

// Errors: invalid: the memory or the positions do not fit `blocks` blocks.
inline Status check_user(const Geometry& geometry, const Extent& user, std::size_t blocks,
                         std::span<const std::size_t> positions) {
  if (!user.valid()) return fail(ErrorCode::invalid, "an extent outside its object");
  if (user.length.value % geometry.block().value != 0) {
    return fail(ErrorCode::invalid, "{} bytes are no whole number of blocks of {}",
                user.length.value, geometry.block().value);
  }
  const std::size_t room = user.length.value / geometry.block().value;
  if (!positions.empty() && positions.size() != blocks) {
    return fail(ErrorCode::invalid, "{} positions for {} blocks", positions.size(), blocks);
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t position = positions.empty() ? i : positions[i];
    if (position >= room) {
      return fail(ErrorCode::invalid, "block {} goes to position {} of memory for {} blocks", i,
                  position, room);
    }
  }
  return {};
}

}  // namespace headrace::kvcache
