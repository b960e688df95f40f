// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/steps.h"

#include <algorithm>

namespace headrace {

std::uint64_t Steps::from(std::uint64_t offset) const {
  if (offset <= all_.offset) return next_;
  const std::uint64_t beyond = offset - all_.offset;
  return std::max(next_, beyond / all_.stride + (beyond % all_.stride != 0 ? 1 : 0));
}

std::optional<std::uint64_t> Steps::find_inside(const Range& range) const {
  if (!is_of(range)) return std::nullopt;
  std::uint64_t number = from(range.offset);
  if (number < all_.count && from_shard_) number = from_shard_(number);
  if (number >= all_.count || offset_of(number) + length() > range.end()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> Steps::find(const Range& range) const {
  if (!is_of(range)) return std::nullopt;
  std::uint64_t first = from(range.end() - std::min(range.end(), length()));
  if (first < all_.count && from_shard_) first = from_shard_(first);
  const bool contains = first < all_.count && offset_of(first) <= range.offset;
  return contains ? first : find_inside(range);
}

bool Steps::overlap(const Range& range) const {
  if (!is_of(range)) return false;
  const std::uint64_t reach = length() - 1;
  const std::uint64_t first = from(range.offset - std::min(range.offset, reach));
  return first < all_.count && offset_of(first) < range.end();
}

}  // namespace headrace
