// SPDX-License-Identifier: Apache-2.0
// Bringing pages in before a device needs them. Thread-safe.
#pragma once

#include "backend/dsa/operation/operation.h"
#include "headrace/result.h"

namespace headrace::dsa {

// Makes the pages of what the operation reads present and of what it writes writable, as a touch of
// the CPU would, but without crashing on what is not there: up to `most` bytes of each from its
// start. invalid: some of it is not this process's memory, or may not be written. A device's own
// way (block on fault) holds up all that is queued behind (SPEC 3.13).
Status bring_in(const PartialOperation& work, std::uint64_t most = 32 << 20);

}  // namespace headrace::dsa
