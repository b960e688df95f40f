// SPDX-License-Identifier: Apache-2.0
// Bringing pages in before a device needs them. Thread-safe.
#pragma once

#include "backend/dsa/queue/partial_copy.h"
#include "headrace/result.h"

namespace headrace::dsa {

// Makes the first `most` bytes of the source present and those of the destination writable, as a
// touch by the CPU would, without crashing on missing memory. invalid: some of it is not this
// process's memory, or may not be written. A device's own way (block on fault) holds up all
// descriptors queued behind (SPEC 3.13).
Status bring_in(const Copy& copy, std::uint64_t most = 32 << 20);

}  // namespace headrace::dsa
