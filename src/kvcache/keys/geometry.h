// SPDX-License-Identifier: Apache-2.0
// How a geometry enters keys and checksums. Thread-safe.
#pragma once

#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

inline constexpr Bytes kLargestBlock = 1_GiB;

// The key before the first block's: the digest of the whole geometry.
Key root_key(const Geometry& geometry);

// The checksum of a fragment in the file, XXH3, 64 bits. It depends on key and layer, so a fragment
// at a wrong place does not fit. If blocks have any size, `layer` is the number of a part.
std::uint64_t fragment_sum(const Key& key, unsigned layer, std::span<const std::byte> bytes);

}  // namespace headrace::kvcache
