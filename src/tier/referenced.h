// SPDX-License-Identifier: Apache-2.0
// How memory is cut into chunks, each a mapping of its own: pure. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/units.h"

namespace headrace {

// Pages are this large or a multiple of it.
inline constexpr std::uint64_t kLeastPage = 4096;

struct Chunks {
  Bytes size;                          // what it was cut into
  std::vector<std::uintptr_t> bounds;  // begins of chunks, and the end of the last one
  std::string note;                    // why they are larger than wanted; "" if they are not
};

// Cuts [begin, end) at multiples of `wanted`, or of `whole` if that is more, or of twice that, and
// so on, so that there are at most `most` chunks, or one. Their number is odd. The last one may be
// cut in two for that. Requires: page-aligned, not empty; powers of two (`whole` may be 0).
Chunks chunks_of(std::uintptr_t begin, std::uintptr_t end, Bytes wanted, std::uint64_t whole,
                 std::uint64_t most);

}  // namespace headrace
