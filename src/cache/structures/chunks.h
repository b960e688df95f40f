// SPDX-License-Identifier: Apache-2.0
// The chunks of a UserSource (UserSource::chunk), which are fetched as a whole. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/object.h"
#include "headrace/storage/user_source.h"

namespace headrace {

// The bytes of a chunk; 1: any range costs as much as its bytes. Requires: `object` is not null.
inline std::uint64_t chunk_of(const Object* object) {
  const UserSource* const source = object->user_source();
  return source == nullptr ? 1 : source->chunk().value;
}

// Whether a miss fetches more than the extent.
inline bool is_chunked(const Extent& extent) {
  return extent.object != nullptr && chunk_of(extent.object) > 1;
}

// The chunks around an extent; the extent itself of another object.
inline Extent whole_chunks(const Extent& extent) {
  if (!extent.valid() || extent.length.value == 0) return extent;
  const std::uint64_t chunk = chunk_of(extent.object);
  const std::uint64_t begin = extent.offset / chunk * chunk;
  const std::uint64_t end = (extent.end() - 1) / chunk * chunk + chunk;
  return {extent.object, begin, Bytes{std::min(end, extent.object->size().value) - begin}};
}

}  // namespace headrace
