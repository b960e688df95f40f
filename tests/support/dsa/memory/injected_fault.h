// SPDX-License-Identifier: Apache-2.0
// What goes wrong with descriptors of an emulated device: by script or at random from a seed.
//
// These are besides the page faults that an AddressSpace has of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "headrace/random.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

// The fault of one descriptor. Descriptors that fail a check are not executed and meet only
// lost_record.
struct InjectedFault {
  enum class Kind : std::uint8_t {
    none,
    page_fault,   // after `at` bytes, if there are as many; with block on fault it is resolved
    status,       // not executed; the record bears `status`, the rest of it is garbage
    lost_record,  // executed, but no record comes
  };
  Kind kind = Kind::none;
  std::uint32_t at = 0;  // bytes done before; of a batch: bytes of its list
  unsigned operand = 0;  // which of its addresses faults: source, destination, second destination
  std::uint8_t status = static_cast<std::uint8_t>(Code::hardware);
};

// Asked for each descriptor, those of batches included, when an engine takes it; `number` counts
// them from 0 as the device came to know them. Called under the device's lock: must not call it.
using FaultScript =
    std::function<InjectedFault(const Descriptor& descriptor, std::uint64_t number)>;

struct DeviceFaults {
  double page_fault_chance = 0;      // at a random byte of a random operand
  double hardware_chance = 0;        // status 0x20
  double unknown_status_chance = 0;  // a status of no meaning
  double lost_record_chance = 0;
  double drop_chance = 0;  // of MOVDIR64B: the descriptor never arrives
  FaultScript script;      // asked first; the chances are for those it lets pass
};

// Draws the fault of descriptor `number`, with the same number of random draws for each.
InjectedFault draw(const DeviceFaults& faults, const Descriptor& descriptor, std::uint64_t number,
                   Random& random);

}  // namespace headrace::emulator
