// SPDX-License-Identifier: Apache-2.0
// Timing a backend: pieces given to it, so many at a time, until all have come back.
//
// Not a mover: one engine, no retry, no priorities. Thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/backend.h"
#include "headrace/histogram.h"

namespace headrace::instruments {

struct Transferred {
  Nanoseconds time{0};
  std::size_t pieces = 0;  // the first so many
};

// Submits `pieces` in order, at most `depth` in flight and none any more once `limit` has passed,
// and returns the time from the first submission to the last completion; `each_ns` records how long
// each piece took. The first failure is returned once nothing is in flight any more. Requires:
// depth > 0, pieces[i].tag == i.
Result<Transferred> transfer_within(Backend& backend, std::span<const Piece> pieces,
                                    std::size_t depth, Nanoseconds limit, Histogram& each_ns);

}  // namespace headrace::instruments
