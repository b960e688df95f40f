// SPDX-License-Identifier: Apache-2.0
// Multiplications that a core does at its full rate, for what stands for a program that computes.
#pragma once

#include <cstdint>

namespace headrace::instruments {

// Multiplies and adds floats in registers, in the widest vectors of this CPU: at least `operations`
// (a multiplication and an addition are two), none for 0. Returns how many it did. Thread-safe.
std::uint64_t multiply(std::uint64_t operations);

}  // namespace headrace::instruments
