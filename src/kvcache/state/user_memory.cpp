// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/user_memory.h"

#include "core/fail.h"

namespace headrace::kvcache {

void fragments(const Geometry& geometry, const Extent& user, Layout layout, std::size_t position,
               unsigned first, unsigned layers, std::vector<Fragment>& result) {
  const std::uint64_t fragment = geometry.fragment().value;
  if (layout == Layout::page_first) {
    const Bytes bytes{fragment * layers};
    result.push_back(
        {.user = user.part(position * geometry.block().value + first * fragment, bytes),
         .in_block = first * fragment,
         .bytes = bytes});
    return;
  }
  const std::uint64_t blocks = user.length.value / geometry.block().value;
  for (unsigned layer = first; layer < first + layers; ++layer) {
    result.push_back({.user = user.part((layer * blocks + position) * fragment, Bytes{fragment}),
                      .in_block = layer * fragment,
                      .bytes = Bytes{fragment}});
  }
}

Status check_user(const Geometry& geometry, const Extent& user, std::size_t blocks,
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
