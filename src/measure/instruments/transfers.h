// SPDX-License-Identifier: Apache-2.0
// Times a backend: submits pieces, a limited number at a time, until all have completed.
// Thread-safe.
//
// It is not a mover: one engine, no retry, no priorities.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/backend.h"
#include "headrace/histogram.h"

namespace headrace::instruments {

struct Transferred {
  Nanoseconds time{0};
  std::size_t pieces = 0;  // completed, from the first on
};

// Submits `pieces` in order, at most `depth` in flight, and none after `limit` has passed. Returns
// the time from the first submission to the last completion; `each_ns` records the time of each
// piece. A first failure is returned once nothing is in flight. Requires: depth > 0, pieces[i].tag
// == i.
Result<Transferred> transfer_within(Backend& backend, std::span<const Piece> pieces,
                                    std::size_t depth, Nanoseconds limit, Histogram& each_ns);

}  // namespace headrace::instruments
