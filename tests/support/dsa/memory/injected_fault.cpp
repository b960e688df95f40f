// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/injected_fault.h"

#include <algorithm>

namespace headrace::emulator {
namespace {

// A status that table 8-9 of SPEC does not have.
constexpr std::uint8_t kUnknownStatus = 0x3b;

// A batch's page fault hits its list.
std::uint64_t bytes_of(const Descriptor& descriptor) {
  if (descriptor.opcode() == Opcode::batch)
    return sizeof(Descriptor) * std::uint64_t{descriptor.size};
  return descriptor.size;
}

}  // namespace

InjectedFault draw(const DeviceFaults& faults, const Descriptor& descriptor, std::uint64_t number,
                   Random& random) {
  Random own = random.fork();
  if (faults.script) {
    const InjectedFault scripted = faults.script(descriptor, number);
    if (scripted.kind != InjectedFault::Kind::none) return scripted;
  }
  if (own.chance(faults.page_fault_chance)) {
    const std::uint64_t bytes = std::max<std::uint64_t>(1, bytes_of(descriptor));
    return {.kind = InjectedFault::Kind::page_fault,
            .at = static_cast<std::uint32_t>(own.below(bytes)),
            .operand = static_cast<unsigned>(own.below(3))};
  }
  if (own.chance(faults.hardware_chance)) return {.kind = InjectedFault::Kind::status};
  if (own.chance(faults.unknown_status_chance)) {
    return {.kind = InjectedFault::Kind::status, .status = kUnknownStatus};
  }
  if (own.chance(faults.lost_record_chance)) return {.kind = InjectedFault::Kind::lost_record};
  return {};
}

}  // namespace headrace::emulator
