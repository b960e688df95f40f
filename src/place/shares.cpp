// SPDX-License-Identifier: Apache-2.0
#include "place/shares.h"

#include <algorithm>

#include "core/check.h"

namespace headrace {

std::vector<RoutePart> cut(Bytes bytes, std::span<const EngineId> engines,
                           std::span<const Bytes> shares) {
  CHECK(!engines.empty() && engines.size() == shares.size());
  std::vector<RoutePart> parts;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < engines.size() && offset < bytes.value; ++i) {
    const Bytes rest{bytes.value - offset};
    const Bytes whole = shares[i] / kShareUnit.value * kShareUnit.value;
    const Bytes length = i + 1 == engines.size() ? rest : std::min(whole, rest);
    if (length == Bytes{0}) continue;
    parts.push_back({offset, length, engines[i]});
    offset += length.value;
  }
  return parts;
}

std::vector<RoutePart> cut_equally(Bytes bytes, std::span<const EngineId> engines) {
  // Rounded up: the last engine gets less than the others rather than more.
  const std::uint64_t units = bytes.value / kShareUnit.value;
  const std::uint64_t each = units / engines.size() + (units % engines.size() == 0 ? 0 : 1);
  const std::vector<Bytes> shares(engines.size(), kShareUnit * each);
  std::vector<RoutePart> parts = cut(bytes, engines, shares);
  // Less than a page at the end does not justify an engine of its own.
  if (parts.size() > 1 && parts.back().length < kShareUnit) {
    const Bytes tail = parts.back().length;
    parts.pop_back();
    parts.back().length += tail;
  }
  return parts;
}

}  // namespace headrace
