// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/user_memory.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "kvcache/keys/geometry.h"

namespace headrace::kvcache {

UserBlock user_block(std::span<const Extent> user, std::span<const std::size_t> positions,
                     std::size_t block) {
  if (user.size() > 1) return {.extent = user[block]};
  return {.extent = user.front(), .position = positions.empty() ? block : positions[block]};
}

namespace {

// Memory of CPUs, or of one GPU.
bool alike(const Object& a, const Object& b) {
  return a.memory() != nullptr ? b.memory() != nullptr
                               : b.memory() == nullptr && a.node() == b.node();
}

Status check_each(const Geometry& geometry, std::span<const Extent> user, Layout layout,
                  std::size_t blocks, std::span<const std::size_t> positions) {
  if (user.size() != blocks) {
    return fail(ErrorCode::invalid, "{} extents for {} blocks", user.size(), blocks);
  }
  if (!positions.empty() || (layout != Layout::page_first && geometry.layers > 1)) {
    return fail(ErrorCode::invalid, "an extent for each block is page_first, without positions");
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!user[i].valid()) {
      return fail(ErrorCode::invalid, "extent {} lies outside its object", i);
    }
    if (geometry.any_size) {
      if (user[i].length == 0_B || user[i].length > kLargestBlock) {
        return fail(ErrorCode::invalid, "extent {} has {} bytes; a block has 1 to {}", i,
                    user[i].length.value, to_string(kLargestBlock));
      }
    } else if (user[i].length != geometry.block()) {
      return fail(ErrorCode::invalid, "extent {} has {} bytes; a block has {}", i,
                  user[i].length.value, geometry.block().value);
    }
    if (!alike(*user[0].object, *user[i].object)) {
      return fail(ErrorCode::invalid, "extent {} is on another device than extent 0", i);
    }
  }
  return {};
}

}  // namespace

Status check_user(const Geometry& geometry, std::span<const Extent> extents, Layout layout,
                  std::size_t blocks, std::span<const std::size_t> positions) {
  if (extents.size() != 1 || geometry.any_size)
    return check_each(geometry, extents, layout, blocks, positions);
  const Extent& user = extents.front();
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

void add_pair(std::vector<MovePair>& pairs, const MovePair& pair) {
  const auto follows = [](const Extent& before, const Extent& extent) {
    return before.object == extent.object && before.end() == extent.offset;
  };
  if (pairs.empty() || !follows(pairs.back().to, pair.to) ||
      !follows(pairs.back().from, pair.from)) {
    pairs.push_back(pair);
    return;
  }
  pairs.back().to.length += pair.to.length;
  pairs.back().from.length += pair.from.length;
}

bool any_overlap(std::span<const Extent> extents) {
  std::vector<Extent> sorted(extents.begin(), extents.end());
  // Files have no address: their extents are sorted by file.
  const auto address = [](const Extent& extent) -> std::pair<const Object*, std::uintptr_t> {
    if (extent.memory() != nullptr) {
      return {nullptr, reinterpret_cast<std::uintptr_t>(extent.memory())};
    }
    const auto device = extent.object->device_address();
    return {device ? nullptr : extent.object, device.value_or(0) + extent.offset};
  };
  if (!std::ranges::is_sorted(sorted, {}, address)) std::ranges::sort(sorted, {}, address);
  return std::ranges::adjacent_find(sorted, overlap) != sorted.end();
}

Status check_apart(std::span<const Extent> into, std::span<const std::size_t> positions) {
  std::vector<std::size_t> sorted(positions.begin(), positions.end());
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return fail(ErrorCode::invalid, "two blocks of a load go to position {}", *twice);
  }
  if (any_overlap(into)) {
    return fail(ErrorCode::invalid,
                "two extents of a load overlap; give each block its own memory");
  }
  return {};
}

}  // namespace headrace::kvcache
