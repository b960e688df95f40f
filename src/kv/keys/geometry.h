// SPDX-License-Identifier: Apache-2.0
// What keys and folders are told of a geometry. Thread-safe.
#pragma once

#include "headrace/kv/store.h"

namespace headrace::kv {

// The key before the first: the digest of all that the geometry says.
Key root_key(const Geometry& geometry);

// Told apart in the file by these, so that a fragment at the wrong place is none: XXH3, 64 bits.
std::uint64_t fragment_sum(const Key& key, unsigned layer, std::span<const std::byte> bytes);
std::uint64_t plain_sum(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace headrace::kv
