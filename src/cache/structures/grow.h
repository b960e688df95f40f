// SPDX-License-Identifier: Apache-2.0
// Grows a vector so that the next push_back() cannot fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace headrace {

// After this call, one push_back() or insert() allocates nothing. A full vector doubles its
// capacity; reserve(size() + 1) would copy all elements each time. Throws std::bad_alloc and then
// leaves the vector unchanged.
template <class T>
void grow_for_one(std::vector<T>& all) {
  constexpr std::size_t kFirst = 8;
  if (all.size() == all.capacity()) all.reserve(std::max(kFirst, 2 * all.size()));
}

}  // namespace headrace
