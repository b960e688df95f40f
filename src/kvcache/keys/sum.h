// SPDX-License-Identifier: Apache-2.0
// XXH3 with 64 bits, in the widest vectors of the CPU. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::kvcache {

std::uint64_t plain_sum(std::span<const std::byte> bytes, std::uint64_t seed);

// The same, compiled for AVX2. Requires: the CPU has it. Declared without templates, because code
// of that file must not be linked for other CPUs.
std::uint64_t plain_sum_avx2(const void* bytes, std::size_t length, std::uint64_t seed);

}  // namespace headrace::kvcache
