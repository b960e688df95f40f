// SPDX-License-Identifier: Apache-2.0
// One descriptor from its checks to its record: all work of a device that needs no lock.
//
// Memory moves, batches and no-ops, by the specification (SPEC: see backend/dsa/queue). Undefined
// fields of records hold garbage, so that a client that uses them is caught.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headrace/random.h"
#include "tests/support/dsa/memory.h"
#include "tests/support/dsa/setup.h"

namespace headrace::emulator {

// The fault of one descriptor. Descriptors that fail a check meet only lost_record.
struct InjectedFault {
  enum class Kind : std::uint8_t {
    none,
    page_fault,   // after `at` bytes, if there are as many
    status,       // not executed; the record has `status`, the rest of it is garbage
    lost_record,  // executed, but no record is written
  };
  Kind kind = Kind::none;
  std::uint32_t at = 0;     // bytes done before; of a batch: bytes of its list
  bool in_writing = false;  // the destination faults, else the source
  std::uint8_t status = static_cast<std::uint8_t>(Code::hardware);
};

// Chances per descriptor, those of batches included.
struct DeviceFaults {
  double page_fault_chance = 0;      // at a random byte
  double hardware_chance = 0;        // status 0x20
  double unknown_status_chance = 0;  // a status without a meaning
  double lost_record_chance = 0;
  double drop_chance = 0;  // of MOVDIR64B: the descriptor never arrives
};
InjectedFault draw(const DeviceFaults& faults, const Descriptor& descriptor, Random& random);

// The part of a descriptor list that a device has read: all, or the part before a page fault.
struct DescriptorList {
  std::vector<Descriptor> descriptors;
  std::optional<std::uint64_t> fault;  // its page
};

struct Executed {
  Record record;
  std::optional<DescriptorList> list;  // of a batch, whose record follows at its end
};

// Errors are in the record. The first of: operation, flags, reserved fields, sizes, alignment; the
// specification does not say which one is reported.
Executed execute(const Descriptor& descriptor, bool in_batch, const QueueSetup& queue,
                 AddressSpace& space, const InjectedFault& injected);

// Writes the record, if there is to be one (SPEC 8.2): it is valid and aligned, and requested or an
// error. False: there was to be one, and it is lost.
bool deliver(const Descriptor& descriptor, const Record& record, AddressSpace& space,
             const InjectedFault& injected);

}  // namespace headrace::emulator
