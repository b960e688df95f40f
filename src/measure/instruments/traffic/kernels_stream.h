// SPDX-License-Identifier: Apache-2.0
// The kernels of STREAM (McCalpin) as loops over one thread's part of its arrays, in the widest
// vectors of the CPU, with both kinds of stores. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::instruments {

inline constexpr double kStreamScalar = 3;

// to = from; to = s from; to = from + other; to = from + s other
enum class StreamOperation : std::uint8_t { copy, scale, add, triad };

// Over `count` elements; only add and triad read `other`. The arrays must not overlap.
using StreamLoop = void (*)(double* to, const double* from, const double* other, std::size_t count);

// `around` false: plain stores, which first fetch their line. `around` true: stores around the
// caches, which have left the core when the loop returns; only whole lines, so the first and the
// last elements of a part are stored plainly. `bits`: vector width, which the CPU must have, as
// vector_widths() of kernels_traffic.h.
StreamLoop stream_loop(StreamOperation operation, bool around, unsigned bits);

}  // namespace headrace::instruments
