#include "headrace/backend.h"

#include <algorithm>
#include <functional>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {
namespace {

Status check_side(const Extent& extent, std::string_view side) {
  if (extent.object == nullptr) {
    return fail(ErrorCode::invalid, "the piece has no {} object; give it an extent of one", side);
  }
  if (!extent.valid()) {
    return fail(
        ErrorCode::invalid,
        "the {} extent (offset {}, length {}) leaves its object of {} bytes; keep it inside", side,
        extent.offset, extent.length.value, extent.object->size().value);
  }
  return {};
}

// Whether two valid extents share a byte: by address in memory, by offset in a file.
bool overlap(const Extent& a, const Extent& b) {
  if (a.length.value == 0 || b.length.value == 0) return false;
  if (a.object->memory() != nullptr && b.object->memory() != nullptr) {
    const std::less<const std::byte*> before;
    return before(a.memory(), b.memory() + b.length.value) &&
           before(b.memory(), a.memory() + a.length.value);
  }
  return a.object == b.object && a.offset < b.end() && b.offset < a.end();
}

}  // namespace

Status check_piece(const Capabilities& capabilities, const Piece& piece) {
  if (std::ranges::find(capabilities.engines, piece.engine) == capabilities.engines.end()) {
    return fail(ErrorCode::unsupported,
                "engine {} is not driven by the {} backend; find its backend with Backends::find",
                raw(piece.engine), capabilities.name);
  }
  HEADRACE_TRY_STATUS(check_side(piece.from, "source"));
  HEADRACE_TRY_STATUS(check_side(piece.to, "destination"));
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
  if (overlap(piece.from, piece.to)) {
    return fail(ErrorCode::invalid, "source and destination overlap; copy through a third buffer");
  }
  return {};
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
