// Timing a backend: pieces given to it, so many at a time, until all have come back.
//
// Not a mover: one engine, no retry, no priorities. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/backend.h"

namespace headrace {

// Submits `pieces` in order, at most `depth` in flight, and returns the time from the first submit
// to the last completion. The first failure is returned once nothing is in flight any more.
// Requires: depth > 0.
Result<Nanoseconds> carry(Backend& backend, std::span<const Piece> pieces, std::size_t depth);

// Cuts a copy into pieces of at most `piece` bytes. Requires: same lengths, piece > 0.
std::vector<Piece> cut(const Extent& to, const Extent& from, EngineId engine, Bytes piece);

}  // namespace headrace
