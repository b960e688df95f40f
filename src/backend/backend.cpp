// SPDX-License-Identifier: Apache-2.0
#include "headrace/backend.h"

#include <algorithm>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {
namespace {

// The reason why a side is not valid().
Unexpected wrong(const Extent& extent, std::string_view side) {
  if (extent.object == nullptr) {
    return fail(ErrorCode::invalid, "the piece has no {} object; give it an extent of one", side);
  }
  return fail(ErrorCode::invalid,
              "the {} extent (offset {}, length {}) leaves its object of {} bytes; keep it inside",
              side, extent.offset, extent.length.value, extent.object->size().value);
}

bool drives(const Capabilities& capabilities, EngineId engine) {
  return std::ranges::find(capabilities.engines, engine) != capabilities.engines.end();
}

// The reason why a piece is not good().
[[gnu::cold, gnu::noinline]] Unexpected complaint(const Capabilities& capabilities,
                                                  const Piece& piece) {
  if (!drives(capabilities, piece.engine)) {
    return fail(ErrorCode::unsupported,
                "engine {} is not driven by the {} backend; find its backend with Backends::find",
                raw(piece.engine), capabilities.name);
  }
  if (!piece.from.valid()) return wrong(piece.from, "source");
  if (!piece.to.valid()) return wrong(piece.to, "destination");
  if (piece.from.length != piece.to.length) {
    return fail(ErrorCode::invalid,
                "the source has {} bytes, the destination {}; a piece needs the same length twice",
                piece.from.length.value, piece.to.length.value);
  }
  if (piece.from.length > capabilities.max_piece) {
    return fail(ErrorCode::invalid,
                "a piece of {} bytes is more than the {} backend takes ({} bytes); cut it",
                piece.from.length.value, capabilities.name, capabilities.max_piece.value);
  }
  return fail(ErrorCode::invalid, "source and destination overlap; copy through a third buffer");
}

bool good(const Capabilities& capabilities, const Piece& piece) {
  return drives(capabilities, piece.engine) && piece.from.valid() && piece.to.valid() &&
         piece.from.length == piece.to.length && piece.from.length <= capabilities.max_piece &&
         !overlap(piece.from, piece.to);
}

}  // namespace

// Called for every piece, so the reason is searched only after a failure.
Status check_piece(const Capabilities& capabilities, const Piece& piece) {
  if (!good(capabilities, piece)) return complaint(capabilities, piece);
  return {};
}

Backends::~Backends() {
  while (!backends_.empty()) backends_.pop_back();
}

void Backends::add(std::unique_ptr<Backend> backend) {
  CHECK(backend != nullptr);
  for (const EngineId engine : backend->capabilities().engines) {
    if (by_engine_.size() <= raw(engine)) by_engine_.resize(raw(engine) + 1, nullptr);
    by_engine_[raw(engine)] = backend.get();
  }
  backends_.push_back(std::move(backend));
}

Backend* Backends::find(EngineId engine) const {
  return raw(engine) < by_engine_.size() ? by_engine_[raw(engine)] : nullptr;
}

}  // namespace headrace
