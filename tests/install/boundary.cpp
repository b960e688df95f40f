// SPDX-License-Identifier: Apache-2.0
// Errors, exceptions and types cross the boundary between a program of C++20 and the library of
// C++23, which may be shared. Exits with the number of the first check that fails.
#include <cstddef>
#include <memory_resource>
#include <new>
#include <typeinfo>
#include <vector>

#include "headrace/headrace.h"

using namespace headrace;

namespace {

Result<Route> no_way(const Machine&, const RouteRequest& request) {
  return Unexpected({ErrorCode::denied, "no way for " + to_string(request.bytes)});
}

// An error made here goes through the library and comes back.
bool errors_cross() {
  Machine machine;
  machine.nodes.push_back({.id = NodeId{0}, .kind = NodeKind::dram});
  const Backends backends;
  Mover mover(machine, backends, {.route = no_way});
  std::vector<std::byte> bytes(128);
  const MemoryRange from({bytes.data(), 64}, NodeId{0});
  const MemoryRange to({bytes.data() + 64, 64}, NodeId{0});
  const auto moved = mover.copy(whole(to), whole(from)).wait();
  return moved == Unexpected({ErrorCode::denied, "no way for 64 B"});
}

// std::bad_alloc thrown by the library is caught here.
bool exceptions_cross(std::pmr::memory_resource& heap) {
  try {
    static_cast<void>(heap.allocate(std::size_t{1} << 60));
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

// A class of the library has one type on both sides.
bool types_cross(std::pmr::memory_resource& heap) {
  return dynamic_cast<Heap*>(&heap) != nullptr && dynamic_cast<SpillChain*>(&heap) == nullptr &&
         typeid(heap) == typeid(Heap) &&
         dynamic_cast<const ManualClock*>(&system_clock()) == nullptr;
}

}  // namespace

int main() {
  if (!errors_cross()) return 1;
  const auto machine = Machine::discover();
  if (!machine) return 2;
  const auto heap = Heap::open(*machine, Placement::on(machine->nodes.front().id));
  if (!heap) return 3;
  if (!exceptions_cross(**heap)) return 4;
  if (!types_cross(**heap)) return 5;
  return Machine::load("no such machine").error().code == ErrorCode::absent ? 0 : 6;
}
