// SPDX-License-Identifier: Apache-2.0
// What a device looks at before it executes a descriptor (SPEC 5, tables 5-3 to 5-5; 8.1, 8.3).
//
// The specification does not say which of several errors is reported. Here it is the first of:
// operation, flags, reserved fields, sizes and counts, values, alignment, overlap.
#pragma once

#include <cstdint>

#include "tests/support/dsa/execute/device_setup.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

// Limits of what a queue of a device accepts.
struct Limits {
  GeneralCapabilities gen_cap;
  Opcodes operations;
  bool block_on_fault = false;
  std::uint64_t max_transfer = 0;
  std::uint32_t max_batch = 0;
  bool delta_records_aligned = false;
};

// Requires: such a queue.
Limits limits_of(const DeviceSetup& setup, std::size_t queue);

struct CheckResult {
  Code code = Code::none;           // none: well
  std::uint32_t invalid_flags = 0;  // with bad_flags
};

// Whether `descriptor` may be executed; `in_batch`: as one of a list.
CheckResult check(const Descriptor& descriptor, const Limits& limits, bool in_batch);

// Whether a record may be written at all: there is one, at a multiple of 32 (SPEC 8.2).
bool has_record(const Descriptor& descriptor);

}  // namespace headrace::emulator
