// Timing a backend: pieces given to it, so many at a time, until all have come back.
//
// Not a mover: one engine, no retry, no priorities. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/backend.h"
#include "headrace/histogram.h"

namespace headrace {

// Submits `pieces` in order, at most `depth` in flight, and returns the time from the first submit
// to the last completion. The first failure is returned once nothing is in flight any more.
// Requires: depth > 0.
Result<Nanoseconds> carry(Backend& backend, std::span<const Piece> pieces, std::size_t depth);

// As carry, but submits nothing any more once `limit` has passed, and records in `each_ns` how long
// each piece took from submission to completion. Requires: pieces[i].tag == i, too.
struct Carried {
  Nanoseconds time{0};
  std::size_t pieces = 0;  // the first so many
};
Result<Carried> carry_within(Backend& backend, std::span<const Piece> pieces, std::size_t depth,
                             Nanoseconds limit, Histogram& each_ns);

// Cuts a copy into pieces of at most `piece` bytes. Requires: same lengths, piece > 0.
std::vector<Piece> cut(const Extent& to, const Extent& from, EngineId engine, Bytes piece);

}  // namespace headrace
