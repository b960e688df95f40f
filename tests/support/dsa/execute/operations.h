// SPDX-License-Identifier: Apache-2.0
// The operations themselves: what a descriptor that passed all checks does to memory, and what its
// record says then (SPEC 8.3).
//
// After a fault the record tells how far the operation came, so that the rest can be submitted
// (SPEC 3.6). A batch is not here, and a drain is only its readbacks: they are about other
// descriptors.
#pragma once

#include "tests/support/dsa/memory/access.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

// Requires: check() found nothing.
Record execute(const Descriptor& descriptor, Access& access);

// In delta.cpp.
Record create_delta(const Descriptor& descriptor, Access& access);
Record apply_delta(const Descriptor& descriptor, Access& access);

// Records of operations that came to their end.
Record succeeded();
// With check_result status 2 where the result is not as expected.
Record judged(const Descriptor& descriptor, std::uint8_t result, bool expected);

}  // namespace headrace::emulator
