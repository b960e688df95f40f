// SPDX-License-Identifier: Apache-2.0
// Room in a vector for what must not fail later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace headrace {

// After it, one push_back() or insert() allocates nothing. Room grows as that of push_back() does:
// reserve(size() + 1) would copy everything each time. Throws std::bad_alloc, changing nothing.
template <class T>
void make_room_for_one(std::vector<T>& all) {
  constexpr std::size_t kFirst = 8;
  if (all.size() == all.capacity()) all.reserve(std::max(kFirst, 2 * all.size()));
}

}  // namespace headrace
