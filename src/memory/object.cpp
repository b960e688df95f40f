// SPDX-License-Identifier: Apache-2.0
#include "headrace/object.h"

#include <atomic>

#include "core/turns/draws.h"

namespace headrace {
namespace {

ObjectId next_id() {
  // Ids of a simulation are far from all others, since threads outside make objects too.
  constexpr std::uint64_t kSimulated = std::uint64_t{1} << 63;
  if (simulated_draws != nullptr) return ObjectId{kSimulated + ++*simulated_draws};
  static std::atomic<std::uint64_t> last{0};
  // Only uniqueness counts; pairs with nothing, because no data is handed over by it.
  return ObjectId{last.fetch_add(1, std::memory_order_relaxed) + 1};
}

}  // namespace

Object::Object(Bytes size, NodeId node, std::byte* memory,
               std::optional<std::uint64_t> device_address)
    : id_(next_id()), size_(size), node_(node), memory_(memory), device_address_(device_address) {}

}  // namespace headrace
