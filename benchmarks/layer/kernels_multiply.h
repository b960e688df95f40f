// SPDX-License-Identifier: Apache-2.0
// Multiplications at the full rate of a core, standing for a program that computes.
#pragma once

#include <cstdint>

namespace headrace::instruments {

// Multiplies and adds floats in registers, in the widest vectors of this CPU: at least `operations`
// (a multiplication and an addition are two), none for 0. Returns the number done. Thread-safe.
std::uint64_t multiply(std::uint64_t operations);

}  // namespace headrace::instruments
