// SPDX-License-Identifier: Apache-2.0
// Cuts memory into chunks, each a separate mapping. Pure. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/units.h"

namespace headrace {

// The smallest page size; others are multiples.
inline constexpr std::uint64_t kLeastPage = 4096;

struct Chunks {
  Bytes size;                          // the chunk size used
  std::vector<std::uintptr_t> bounds;  // begins of chunks, and the end of the last one
  std::string note;                    // why chunks are larger than wanted; "": they are not
};

// Cuts [begin, end) at multiples of max(`wanted`, `whole`), doubled until there are at most `most`
// chunks, or one. The number of chunks is odd; the last one may be cut in two for that. Requires:
// page-aligned, not empty; powers of two (`whole` may be 0).
Chunks chunks_of(std::uintptr_t begin, std::uintptr_t end, Bytes wanted, std::uint64_t whole,
                 std::uint64_t most);

}  // namespace headrace
